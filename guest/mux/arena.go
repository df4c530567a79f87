package mux

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// An arena is memory that both ends of a session map. The body of a large frame is written
// there once and read once, and only the frame's head crosses the connection: in gVisor a
// piece of 512 KiB then costs what one byte does.
//
// Each direction has units of its own, which its sender assigns. A frame lends adjacent units,
// a slot, to the receiver, who returns them when the body was read. Without a free slot a body
// travels in its frame as before, so slots need no waiting and no fairness.
//
// The memory is a sealed memfd of the server: a guest can write anything to it at any time,
// but cannot shrink it, so the server reads each byte at most once and checks only its copy.
const (
	unitSize  = 128 << 10
	unitCount = 16 // of each direction
	allUnits  = 1<<unitCount - 1
	sideSize  = unitCount * unitSize
	arenaSize = 2 * sideSize

	// slotSize is the size of the largest slot.
	slotSize = 512 << 10
	// minShared is the size of the smallest body that travels in a slot.
	minShared = 32 << 10
	// maxArenas is the number of arenas of the process, which bounds their memory.
	maxArenas = 64
)

var arenas atomic.Int32

type arena struct {
	mem  []byte
	ours int          // offset of the units to which this end writes; theirs are in the other half
	refs atomic.Int32 // of the session, of borrowed slots, and of writes; the last one unmaps

	mu      sync.Mutex
	free    uint32 // own units that may be written to
	lent    uint32 // the other end's units that hold unread data
	known   bool   // the other end has the memory too: slots may be assigned
	closing bool   // no more slots are assigned
	used    bool   // since retire was last called
}

// newArena makes the memory of a session. The caller closes the file after it was sent.
func newArena() (*arena, *os.File, error) {
	if arenas.Add(1) > maxArenas {
		arenas.Add(-1)
		return nil, nil, errors.New("too many arenas")
	}
	fd, err := unix.MemfdCreate("berth-arena", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		arenas.Add(-1)
		return nil, nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "berth-arena")
	err = f.Truncate(arenaSize)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	var a *arena
	if err == nil {
		a, err = mapArena(f, 0)
	}
	if err == nil {
		a.known = true // the server uses the memory only after the guest's answer
	}
	if err != nil {
		arenas.Add(-1)
		f.Close()
		return nil, nil, fmt.Errorf("make shared memory: %w", err)
	}
	return a, f, nil
}

// mapArena maps the memory in f. ours is the offset of the own slots in it.
func mapArena(f *os.File, ours int) (*arena, error) {
	if st, err := f.Stat(); err != nil || st.Size() != arenaSize {
		return nil, errors.New("not an arena")
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, arenaSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	a := &arena{mem: mem, ours: ours, free: allUnits}
	a.refs.Store(1)
	return a, nil
}

// drop gives up a reference.
func (a *arena) drop() {
	if a.refs.Add(-1) == 0 {
		_ = unix.Munmap(a.mem)
		if a.ours == 0 { // the server's
			arenas.Add(-1)
		}
	}
}

// hold takes a reference. It reports false if the memory is unmapped.
func (a *arena) hold() bool {
	for n := a.refs.Load(); n > 0; n = a.refs.Load() {
		if a.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// announced records that the other end was informed that this one has mapped the memory.
func (a *arena) announced() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = true
}

// A slot is one that was assigned for a write, with a reference to the memory.
type slot struct {
	arena *arena
	first int
	mask  uint32
}

// unitsOf returns the mask of the units from first on that hold n bytes.
func unitsOf(first, n int) uint32 {
	return (1<<((n+unitSize-1)/unitSize) - 1) << first
}

// assign returns a free slot for a body of n bytes. It returns no memory if there is none.
func (a *arena) assign(n int) (slot, []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.known || a.closing || n > slotSize {
		return slot{}, nil
	}
	for first := range unitCount {
		mask := unitsOf(first, n)
		if mask&^a.free != 0 {
			continue
		}
		if !a.hold() {
			break
		}
		a.used = true
		a.free &^= mask
		at := a.ours + first*unitSize
		return slot{a, first, mask}, a.mem[at : at+n]
	}
	return slot{}, nil
}

// returned records that the other end has read the units of a mask.
func (a *arena) returned(mask uint32) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if mask&^allUnits != 0 || mask&a.free != 0 {
		return fmt.Errorf("%w: it returns slots that it does not have", errWire)
	}
	a.free |= mask
	return nil
}

// borrow returns the n bytes of a slot of the other end, with a reference to it.
func (a *arena) borrow(first uint32, n int) (*chunk, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if first >= unitCount || n <= 0 || n > slotSize {
		return nil, fmt.Errorf("%w: a body of %d bytes in unit %d", errWire, n, first)
	}
	mask := unitsOf(int(first), n)
	if mask&^allUnits != 0 || mask&a.lent != 0 || !a.hold() {
		return nil, fmt.Errorf("%w: a body in units that it has lent", errWire)
	}
	a.lent |= mask
	a.used = true
	at := sideSize - a.ours + int(first)*unitSize
	return &chunk{buf: a.mem[at : at+n : at+n], w: n, arena: a, units: mask}, nil
}

// giveBack records that a borrowed slot was read.
func (a *arena) giveBack(mask uint32) {
	a.mu.Lock()
	a.lent &^= mask
	a.mu.Unlock()
	a.drop()
}

// retire closes the arena if no slot is in use or was since the previous call.
func (a *arena) retire() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used || a.closing || a.free != allUnits || a.lent != 0 {
		a.used = false
		return false
	}
	a.closing = true
	return true
}

// close stops the assignment of slots.
func (a *arena) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closing = true
}

// closed reports whether the arena is closing and all own slots are free.
func (a *arena) closed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closing && a.free == allUnits
}
