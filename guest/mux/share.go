package mux

import (
	"errors"
	"fmt"
	"math/bits"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// probe is the number of the ping that finds out whether a guest supports arenas. A guest
// with yamux answers it without flagShared.
const probe = 1<<32 - 1

// The states of shared memory at the server's end.
const (
	sharingNone    = iota
	sharingProbed  // the guest was pinged
	sharingOffered // the memory was sent
	sharingOn
	sharingLater // it cannot be made now
	sharingNever // the guest cannot map it
)

// A filePasser is a connection to a process that can receive descriptors.
type filePasser interface {
	// WriteFile writes p together with a descriptor of f.
	WriteFile(p []byte, f *os.File) error
}

// sharing is the use of an arena by a session. The server makes one when it sees the first
// large frame, and retires it when it was not used for a while: idle sessions have none.
type sharing struct {
	passer filePasser  // nil if the server cannot offer memory
	files  *fileReader // nil if the guest cannot receive memory

	arena   atomic.Pointer[arena]
	state   atomic.Int32  // of the server's end
	freed   atomic.Uint32 // units to return
	waiting atomic.Bool   // they are returned after freedTime
	kick    chan struct{} // signalled when units are to be returned

	mu      sync.Mutex
	offered *arena
	ended   bool
}

// able returns the flag with which a ping of the server is answered.
func (sh *sharing) able() uint16 {
	if sh.files != nil {
		return flagShared
	}
	return 0
}

// large is called for each large frame whose body was not shared.
func (sh *sharing) large(s *Session) {
	if sh.passer != nil && sh.state.Load() == sharingNone && sh.state.CompareAndSwap(sharingNone, sharingProbed) {
		s.answer(reply{kindPing, flagSYN | flagShared, 0, probe})
	}
}

// probed is called with the guest's answer to the probe.
func (sh *sharing) probed(s *Session, able bool) {
	switch {
	case !able:
		sh.state.CompareAndSwap(sharingProbed, sharingNever)
	case sh.state.CompareAndSwap(sharingProbed, sharingOffered):
		go sh.offer(s)
	}
}

// offer sends memory to the guest.
func (sh *sharing) offer(s *Session) {
	a, f, err := newArena()
	if err != nil {
		sh.state.Store(sharingLater)
		return
	}
	defer f.Close()
	sh.mu.Lock()
	if sh.ended {
		sh.mu.Unlock()
		a.drop()
		return
	}
	sh.offered = a
	sh.mu.Unlock()
	if s.begin(nil) != nil {
		return
	}
	defer func() { <-s.turn }()
	sent, err := s.wake()
	if err != nil {
		return
	}
	defer sent()
	if err := sh.passer.WriteFile(reply{kindArena, flagSYN, 0, arenaSize}.append(nil), f); err != nil {
		s.end(err)
	}
}

// receive processes a frame about shared memory.
func (sh *sharing) receive(s *Session, r reply) error {
	a := sh.arena.Load()
	switch {
	case r.kind == kindSlot:
		if a == nil {
			return fmt.Errorf("%w: it returns slots without an arena", errWire)
		}
		if err := a.returned(r.length); err != nil {
			return err
		}
		if s.guest && a.closed() {
			sh.finish(s)
		}
	case s.guest && r.flags == flagSYN && a == nil:
		sh.accept(s)
	case s.guest && r.flags == flagFIN && a != nil:
		if a.close(); a.closed() {
			sh.finish(s)
		}
	case !s.guest && r.flags == flagFIN && a != nil && a.closed():
		sh.arena.Store(nil)
		a.drop()
		sh.state.Store(sharingNone)
	case !s.guest && r.flags&(flagACK|flagRST) != 0 && a == nil:
		return sh.answered(r.flags&flagACK != 0)
	default:
		return fmt.Errorf("%w: a frame about shared memory out of turn", errWire)
	}
	return nil
}

// answered is called when the guest has mapped the memory, or cannot.
func (sh *sharing) answered(mapped bool) error {
	sh.mu.Lock()
	a := sh.offered
	sh.offered = nil
	sh.mu.Unlock()
	switch {
	case a == nil:
		return fmt.Errorf("%w: it accepts shared memory that it was not offered", errWire)
	case mapped:
		sh.attach(a)
		sh.state.Store(sharingOn)
	default:
		a.drop()
		sh.state.Store(sharingNever)
	}
	return nil
}

// attach uses an arena, unless the session has ended.
func (sh *sharing) attach(a *arena) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.ended {
		a.drop()
		return
	}
	sh.arena.Store(a)
}

// accept maps the memory that the server has sent. Without it the session continues.
func (sh *sharing) accept(s *Session) {
	a, err := sh.files.arena()
	if err != nil {
		s.promise(reply{kindArena, flagRST, 0, 0})
		return
	}
	sh.attach(a)
	go func() { // the other end must receive this before the first frame in the memory
		if s.send(nil, kindArena, flagACK, 0, 0, nil) == nil {
			a.announced()
		}
	}()
}

// finish ends the use of a closed arena at the guest's end.
func (sh *sharing) finish(s *Session) {
	if a := sh.arena.Swap(nil); a != nil {
		a.drop()
		s.promise(reply{kindArena, flagFIN, 0, 0})
	}
}

// tick retires an arena that was not used since the previous tick, and lets the session try
// again where it could not have one.
func (sh *sharing) tick(s *Session) {
	sh.state.CompareAndSwap(sharingLater, sharingNone)
	sh.state.CompareAndSwap(sharingProbed, sharingLater) // the probe may have been dropped
	if a := sh.arena.Load(); a != nil && a.retire() {
		s.promise(reply{kindArena, flagFIN, 0, 0})
	}
}

// end unmaps everything.
func (sh *sharing) end() {
	sh.mu.Lock()
	offered := sh.offered
	sh.offered, sh.ended = nil, true
	sh.mu.Unlock()
	for _, a := range []*arena{offered, sh.arena.Swap(nil)} {
		if a != nil {
			a.drop()
		}
	}
	if sh.files != nil {
		sh.files.close()
	}
}

// Units are returned together with a window, or when this many wait, or after a while.
const (
	manyFreed = unitCount / 4
	freedTime = time.Second
)

// giveBack marks a chunk's units for their return to the other end.
func (sh *sharing) giveBack(c *chunk) {
	c.arena.giveBack(c.units)
	sh.freed.Or(c.units)
	if sh.waiting.CompareAndSwap(false, true) {
		time.AfterFunc(freedTime, func() {
			sh.waiting.Store(false)
			select {
			case sh.kick <- struct{}{}:
			default:
			}
		})
	}
}

// slots appends the frame that returns units, if there are any.
func (sh *sharing) slots(b []byte) []byte {
	if mask := sh.freed.Swap(0); mask != 0 {
		return reply{kindSlot, 0, 0, mask}.append(b)
	}
	return b
}

// acknowledge opens the other end's window by n bytes and returns units, in one write.
func (s *Session) acknowledge(id uint32, n int) {
	if n == 0 && bits.OnesCount32(s.share.freed.Load()) < manyFreed || s.begin(nil) != nil {
		return
	}
	defer func() { <-s.turn }()
	s.heads = s.heads[:0]
	if n > 0 {
		s.heads = reply{kindWindow, 0, id, uint32(n)}.append(s.heads)
	}
	if s.heads = s.share.slots(s.heads); len(s.heads) > 0 {
		_ = s.write(nil)
	}
}

// data sends data of a stream, in a slot or in frames. Its window allows it.
func (s *Session) data(st *Stream, p []byte) error {
	if len(p) >= minShared {
		if a := s.share.arena.Load(); a == nil {
			s.share.large(s)
		} else if slot, piece := a.assign(len(p)); piece != nil {
			copy(piece, p)
			return s.sendShared(st, slot, len(p))
		}
	}
	for len(p) > 0 {
		n := min(len(p), maxFrame)
		if err := s.send(st.gone, kindData, 0, st.id, uint32(n), p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// sendShared sends the first n bytes of an assigned slot, and frees the units beyond them.
func (s *Session) sendShared(st *Stream, slot slot, n int) error {
	defer slot.arena.drop()
	used := unitsOf(slot.first, n)
	if err := slot.arena.returned(slot.mask &^ used); err != nil || n == 0 {
		return err
	}
	if err := s.begin(st.gone); err != nil {
		return errors.Join(err, slot.arena.returned(used))
	}
	defer func() { <-s.turn }()
	s.heads = reply{kindData, flagShared, st.id, uint32(n)}.append(s.heads[:0])
	s.heads = append(s.heads, 0, 0, 0, byte(slot.first))
	return s.write(nil)
}

// A fileReader reads from a Unix socket and keeps the last descriptor that came with the data.
type fileReader struct {
	conn *net.UnixConn

	mu     sync.Mutex
	file   *os.File
	closed bool
}

// Read implements io.Reader.
func (r *fileReader) Read(p []byte) (int, error) {
	var rights [32]byte
	n, m, _, _, err := r.conn.ReadMsgUnix(p, rights[:])
	if m > 0 {
		r.keep(rights[:m])
	}
	if n == 0 && err == nil && len(p) > 0 {
		return 0, net.ErrClosed
	}
	return max(n, 0), err
}

func (r *fileReader) keep(rights []byte) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range messages {
		fds, _ := unix.ParseUnixRights(&m)
		for _, fd := range fds {
			if r.file != nil {
				r.file.Close()
			}
			r.file = os.NewFile(uintptr(fd), "arena")
			if r.closed {
				r.file.Close()
			}
		}
	}
}

// arena maps the last received file.
func (r *fileReader) arena() (*arena, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return nil, os.ErrNotExist
	}
	defer func() {
		r.file.Close()
		r.file = nil
	}()
	return mapArena(r.file, sideSize)
}

func (r *fileReader) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.file != nil {
		r.file.Close()
	}
}
