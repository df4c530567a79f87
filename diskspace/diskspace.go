// Package diskspace watches the volumes that hold a server's state, and holds a reserve on one
// of them.
//
// Each volume has two floors of free space. Below the low floor nothing new is created: Admit
// returns an error. Below the critical floor the containers that write the most are ended,
// until the volume is above it. The reserve is a file whose blocks are allocated. It is
// released when the volume of the database is full, so that deletions, the last events of
// responses and the audit log can still be written. It is allocated again when there is space.
package diskspace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// An Area is a part of the state that has a directory.
type Area string

// The areas of a server.
const (
	Database  Area = "database" // also the audit log and the reserve
	Files     Area = "files"
	Uploads   Area = "uploads"
	Skills    Area = "skills"
	Snapshots Area = "snapshots"
	Sandboxes Area = "sandboxes"
	Volumes   Area = "volumes"
	Images    Area = "images"
)

const (
	watchEvery = 250 * time.Millisecond
	// watchClosely is the interval while a volume is near its low floor.
	watchClosely = 50 * time.Millisecond
	// startBytes is the part of the reserve that is released only at a start: without it SQLite
	// could not even open the database.
	startBytes = 2 << 20
	// relieveAgain is the pause after relieve found no container to end.
	relieveAgain = 5 * time.Second
)

// RetryAfter is the delay in the Retry-After header of refused requests. OpenAI's clients
// repeat a request on 507 as on 503, after this delay.
const RetryAfter = 10 * time.Second

// Options are a Guard's parts. Dir is required.
type Options struct {
	Dir   string          // of the state; holds the reserve
	Areas map[Area]string // directories; a missing one counts as its nearest existing parent
	Log   *slog.Logger    // default: nothing is logged

	// Low and Critical are the floors of each volume, and Reserve is the size of the reserve,
	// in bytes. nil means a default by the size of the volume; 0 disables.
	Low, Critical, Reserve *int64
	// Inodes is the low floor of free inodes. nil means a default by their number.
	Inodes *int64

	// Calm stops the sandboxes that write. It may be nil. Open calls it if the volume of the
	// sandboxes is below its low floor, before it releases the reserve: the sandboxes would use
	// that up too. need returns how many bytes the volume is below its critical floor now.
	Calm func(need func() int64)
}

// A Guard watches the volumes. It is safe for concurrent use.
type Guard struct {
	opts    Options
	areas   []area
	reserve reserve
	refused atomic.Int64
	poke    chan struct{} // buffered: requests a measurement now

	relieve func(ctx context.Context, need func() int64) bool // set before Start

	end  context.CancelFunc
	done chan struct{}

	mu      sync.Mutex // guards all fields below
	volumes []*volume
}

// An area is a directory and the volume that it is on.
type area struct {
	name Area
	on   *volume
}

// Open measures the volumes and allocates the reserve. If the volume is full, it releases the
// reserve instead, so that a server can start.
func Open(opts Options) (*Guard, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	g := &Guard{opts: opts, poke: make(chan struct{}, 1)}
	dirs := map[Area]string{Database: opts.Dir}
	for name, dir := range opts.Areas {
		dirs[name] = dir
	}
	for _, name := range []Area{Database, Files, Snapshots, Sandboxes, Volumes, Images} {
		dir, ok := dirs[name]
		if !ok {
			continue
		}
		v, err := g.volumeOf(existing(dir))
		if err != nil {
			return nil, fmt.Errorf("measure free space: %w", err)
		}
		g.areas = append(g.areas, area{name, v})
	}
	state := g.areas[0].on
	g.reserve = reserve{path: filepath.Join(opts.Dir, reserveName), want: state.reserveSize(opts.Reserve)}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reserve.given = g.reserve.exists() && g.reserve.held() < g.reserve.want
	if on := g.sandboxes(); opts.Calm != nil && on != nil && on.isLow() {
		g.mu.Unlock()
		opts.Calm(g.lack)
		g.mu.Lock()
		_ = state.measure()
	}
	g.tend(state)
	if state.own < startBytes {
		g.giveUp(state, 0)
	}
	return g, nil
}

// existing returns the directory, or its nearest existing parent.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// volumeOf returns the volume of a directory. Directories on one volume share it.
func (g *Guard) volumeOf(dir string) (*volume, error) {
	v, err := openVolume(dir, g.opts)
	if err != nil {
		return nil, err
	}
	for _, known := range g.volumes {
		if known.dev == v.dev {
			return known, nil
		}
	}
	g.volumes = append(g.volumes, v)
	return v, nil
}

// Start watches the volumes until Close. It calls relieve while the volume of the sandboxes is
// below its critical floor. relieve ends the containers that write the most and returns true
// when their space is free, or false if it ends none. need returns how many bytes the volume is
// below the floor now.
func (g *Guard) Start(relieve func(ctx context.Context, need func() int64) bool) {
	ctx, cancel := context.WithCancel(context.Background())
	g.relieve, g.end, g.done = relieve, cancel, make(chan struct{})
	go g.watch(ctx)
}

// Close stops the watch. The reserve stays allocated.
func (g *Guard) Close() error {
	if g.end != nil {
		g.end()
		<-g.done
	}
	return nil
}

func (g *Guard) watch(ctx context.Context) {
	defer close(g.done)
	var rest time.Time // relieve is not called before
	for {
		need, wait := g.look()
		// This comes before the reserve is released: the writers would use that up too.
		if need > 0 && time.Now().After(rest) && !g.relieve(ctx, g.lack) {
			rest = time.Now().Add(relieveAgain)
		}
		g.tendState()
		select {
		case <-time.After(wait):
		case <-g.poke:
		case <-ctx.Done():
			return
		}
	}
}

// look measures all volumes. It returns how far the volume of the sandboxes is below its
// critical floor, and the time until the next measurement.
func (g *Guard) look() (need int64, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wait = watchEvery
	for _, v := range g.volumes {
		if err := v.measure(); err != nil {
			g.opts.Log.Error("failed to measure free space", "dir", v.dir, "err", err)
			continue
		}
		v.report(g.opts.Log)
		if v.free < 2*v.low {
			wait = watchClosely
		}
	}
	if v := g.sandboxes(); v != nil {
		need = v.critical - v.free
	}
	return need, wait
}

// sandboxes returns the volume of the sandboxes, or nil if it is not watched.
func (g *Guard) sandboxes() *volume {
	for _, a := range g.areas {
		if a.name == Sandboxes {
			return a.on
		}
	}
	return nil
}

// lack measures how far the volume of the sandboxes is below its critical floor.
func (g *Guard) lack() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.sandboxes()
	if v == nil || v.measure() != nil {
		return 0
	}
	return v.critical - v.free
}

func (g *Guard) tendState() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v := g.areas[0].on; v.measure() == nil {
		g.tend(v)
	}
}

// tend releases the reserve if the volume is nearly full, and allocates it if there is space.
// g.mu is held.
func (g *Guard) tend(v *volume) {
	held := g.reserve.held()
	switch {
	case held > startBytes && v.own < v.critical/4:
		g.giveUp(v, startBytes)
	case held < g.reserve.want && v.own-(g.reserve.want-held) >= v.critical:
		if err := g.reserve.allocate(); err != nil {
			if !full(err) {
				g.opts.Log.Warn("failed to allocate the reserve of disk space", "path", g.reserve.path, "bytes",
					g.reserve.want, "err", err)
				g.reserve.want = 0 // the file system does not support it
			}
			return
		}
		if g.reserve.given {
			g.opts.Log.Info("reserve of disk space allocated again", "bytes", g.reserve.want)
		}
		g.reserve.given = false
		_ = v.measure()
	}
}

// giveUp releases the reserve except leave bytes. It returns false if the reserve is empty.
// g.mu is held.
func (g *Guard) giveUp(v *volume, leave int64) bool {
	held := g.reserve.held()
	if held <= leave {
		return false
	}
	if err := g.reserve.release(leave); err != nil {
		g.opts.Log.Error("failed to release the reserve of disk space", "path", g.reserve.path, "err", err)
		return false
	}
	g.reserve.given = true
	_ = v.measure()
	g.opts.Log.Error("disk full: released the reserve; only deletions and ends are saved until there is space", "dir",
		v.dir, "free_bytes", v.own, "reserve_bytes", held-leave)
	return true
}

// Admit returns an error for the client if the volume of the database, or of one of the areas,
// is below its low floor.
func (g *Guard) Admit(areas ...Area) error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.areas {
		if a.name != Database && !contains(areas, a.name) {
			continue
		}
		if err := a.on.measure(); err != nil || !a.on.isLow() {
			continue
		}
		g.refused.Add(1)
		g.wake()
		return Refused(nil)
	}
	return nil
}

func contains(areas []Area, a Area) bool {
	for _, one := range areas {
		if one == a {
			return true
		}
	}
	return false
}

// Refused returns the error for a client whose request cannot be stored. cause is for the log
// and may be nil.
func Refused(cause error) *berth.Error {
	return &berth.Error{Code: berth.CodeInsufficientStorage, RetryAfter: RetryAfter, Err: cause,
		Message: "The disk of this server is full. Delete containers, files, snapshots or responses that you do not need, or ask its operator for more space, and send the request again."}
}

// Refuse implements sqlite.Room: while the reserve is released, only writes that free space or
// end something are allowed.
func (g *Guard) Refuse() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.areas[0].on
	if !g.reserve.given || v.measure() == nil && v.own >= g.reserve.want {
		return nil
	}
	return fmt.Errorf("%w: the remaining disk space is reserved for deletions", store.ErrStorage)
}

// MakeRoom implements sqlite.Room: it releases the reserve. It returns true if the reserve is
// released, by this call or an earlier one.
func (g *Guard) MakeRoom() bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wake()
	return g.giveUp(g.areas[0].on, startBytes) || g.reserve.given
}

// Lack returns how many bytes the volumes of some areas lack, together, for Admit to return no error. It is at least 1
// for a volume without inodes.
func (g *Guard) Lack(areas ...Area) int64 {
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	lack := map[*volume]int64{}
	for _, a := range g.areas {
		if contains(areas, a.name) && a.on.measure() == nil && a.on.isLow() {
			lack[a.on] = max(1, a.on.low-a.on.free)
		}
	}
	var sum int64
	for _, n := range lack {
		sum += n
	}
	return sum
}

// wake requests a measurement of the volumes now.
func (g *Guard) wake() {
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

// Refusals returns the number of requests that Admit refused.
func (g *Guard) Refusals() int64 { return g.refused.Load() }

// Reserve returns the current size of the reserve and its full size, in bytes.
func (g *Guard) Reserve() (held, want int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reserve.held(), g.reserve.want
}

// A Reading is a measurement of the volume of an area.
type Reading struct {
	Area          Area
	Bytes, Free   int64 // of the volume; Free is for ordinary users
	Inodes        int64 // 0 if the file system has no fixed number
	InodesFree    int64
	Low, Critical int64 // floors in bytes
	IsLow         bool
}

// Readings measures the volumes and returns a reading for each area.
func (g *Guard) Readings() []Reading {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]Reading, 0, len(g.areas))
	for _, a := range g.areas {
		v := a.on
		if v.measure() != nil {
			continue
		}
		all = append(all, Reading{Area: a.name, Bytes: v.size, Free: v.free, Inodes: v.inodes, InodesFree: v.inodesFree,
			Low: v.low, Critical: v.critical, IsLow: v.isLow()})
	}
	return all
}

// Err returns an error, for the operator, if a volume is below its low floor.
func (g *Guard) Err() error {
	var errs []error
	for _, r := range g.Readings() {
		if r.IsLow {
			errs = append(errs, fmt.Errorf("%s: %d bytes and %d inodes are free", r.Area, r.Free, r.InodesFree))
		}
	}
	return errors.Join(errs...)
}
