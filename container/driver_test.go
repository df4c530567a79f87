package container

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/guest/server"
	"github.com/berth-run/berth/sandbox"
)

// A memDriver runs sandboxes whose guests are the real server, in this process. It checks its
// contract: two concurrent calls about one sandbox fail the test.
type memDriver struct {
	t *testing.T

	// fail, if set, is called before each call ("create", "start", …). It may block. If it
	// returns an error, the call does nothing else.
	fail func(ctx context.Context, op, id string) error
	// done, if set, is called after each call, before the call returns. It may block.
	done func(ctx context.Context, op, id string)
	// serve, if set, replaces the guest.
	serve func(net.Conn)
	// wrap, if set, wraps the guest's end of a connection.
	wrap func(net.Conn) net.Conn
	// wrapOwn, if set, wraps the server's end of a connection.
	wrapOwn func(net.Conn) net.Conn

	pressure *float64 // in Stats; set before the first call

	busyOnly atomic.Bool // it cannot pause
	mounts   atomic.Bool // it accepts Spec.Mounts, and does not mount them

	mu      sync.Mutex
	boxes   map[string]*box
	busy    map[string]string // the running call, by id
	ops     map[string]int    // number of calls by operation
	now     int               // sandboxes being created or started now
	most    int               // the maximum of now
	changed chan struct{}     // closed and replaced when boxes change
}

// A box is a sandbox of a memDriver.
type box struct {
	spec   sandbox.Spec
	state  sandbox.State
	reason sandbox.Reason
	cpu    time.Duration   // in Stats
	dir    string          // with work/, which is the sandbox's /mnt/data
	life   context.Context // of the guest
	stop   context.CancelFunc
	accept chan net.Conn

	mu    sync.Mutex
	conns []net.Conn
}

func newDriver(t *testing.T) *memDriver {
	return &memDriver{t: t, boxes: map[string]*box{}, busy: map[string]string{}, ops: map[string]int{},
		changed: make(chan struct{})}
}

// do starts a call about a sandbox; the function it returns ends it.
func (d *memDriver) do(ctx context.Context, op, id string) (func(), error) {
	d.mu.Lock()
	if other := d.busy[id]; other != "" {
		d.t.Errorf("%s was called during %s of %s", op, other, id)
	}
	d.busy[id] = op
	d.ops[op]++
	if op == "create" || op == "start" {
		d.now++
		d.most = max(d.most, d.now)
	}
	fail, done := d.fail, d.done
	d.mu.Unlock()
	end := func() {
		if done != nil {
			done(ctx, op, id)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.busy, id)
		if op == "create" || op == "start" {
			d.now--
		}
		close(d.changed)
		d.changed = make(chan struct{})
	}
	if fail != nil {
		if err := fail(ctx, op, id); err != nil {
			end()
			return nil, err
		}
	}
	return end, ctx.Err()
}

func (d *memDriver) box(id string) *box {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.boxes[id]
}

func (d *memDriver) Create(ctx context.Context, spec sandbox.Spec) error {
	end, err := d.do(ctx, "create", spec.ID)
	if end != nil {
		defer end()
	}
	if err != nil {
		return err
	}
	if err := sandbox.CheckID(spec.ID); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(d.t.TempDir(), "box")
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.boxes[spec.ID] != nil {
		return fs.ErrExist
	}
	d.boxes[spec.ID] = &box{spec: spec, state: sandbox.StateCreated, dir: dir, accept: make(chan net.Conn)}
	return nil
}

func (d *memDriver) Start(ctx context.Context, id string) error {
	end, err := d.do(ctx, "start", id)
	if end != nil {
		defer end()
	}
	if err != nil {
		return err
	}
	b := d.box(id)
	if b == nil {
		return sandbox.ErrNotFound
	}
	me, err := user.Current()
	if err != nil {
		return err
	}
	g, err := server.New(server.Options{User: me.Username, WorkDir: b.work(), StateDir: filepath.Join(b.dir, "state")})
	if err != nil {
		return err
	}
	life, stop := context.WithCancel(context.Background())
	d.mu.Lock()
	b.state, b.life, b.stop = sandbox.StateRunning, life, stop
	d.mu.Unlock()
	go g.Serve(life, pipeListener{accept: b.accept, done: life.Done()})
	return nil
}

func (d *memDriver) Dial(ctx context.Context, id string) (net.Conn, error) {
	end, err := d.do(ctx, "dial", id)
	if end != nil {
		defer end()
	}
	if err != nil {
		return nil, err
	}
	b := d.box(id)
	if b == nil {
		return nil, sandbox.ErrNotFound
	}
	d.mu.Lock()
	alive, serve := b.state == sandbox.StateRunning, d.serve
	d.mu.Unlock()
	if !alive {
		return nil, errRefused
	}
	ours, theirs := net.Pipe()
	if d.wrap != nil {
		theirs = d.wrap(theirs)
	}
	own := net.Conn(ours)
	if d.wrapOwn != nil {
		own = d.wrapOwn(ours)
	}
	b.mu.Lock()
	b.conns = append(b.conns, theirs)
	b.mu.Unlock()
	if serve != nil {
		go serve(theirs)
		return own, nil
	}
	select {
	case b.accept <- theirs:
		return own, nil
	case <-b.life.Done():
		return nil, errRefused
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (d *memDriver) Stats(ctx context.Context, id string) (sandbox.Stats, error) {
	end, err := d.do(ctx, "stats", id)
	if end != nil {
		defer end()
	}
	if err != nil {
		return sandbox.Stats{}, err
	}
	b := d.box(id)
	if b == nil {
		return sandbox.Stats{}, sandbox.ErrNotFound
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return sandbox.Stats{State: b.state, Reason: b.reason, CPU: time.Second + b.cpu, Pressure: d.pressure}, nil
}

func (d *memDriver) Pause(ctx context.Context, id string) error {
	return d.turn(ctx, "pause", id, sandbox.StateRunning, sandbox.StatePaused)
}

func (d *memDriver) Resume(ctx context.Context, id string) error {
	return d.turn(ctx, "resume", id, sandbox.StatePaused, sandbox.StateRunning)
}

// turn changes a sandbox's state. A paused one accepts no connections.
func (d *memDriver) turn(ctx context.Context, op, id string, from, to sandbox.State) error {
	end, err := d.do(ctx, op, id)
	if end != nil {
		defer end()
	}
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.boxes[id]
	if b == nil {
		return sandbox.ErrNotFound
	}
	if b.state != from {
		return errors.New("sandbox is " + string(b.state))
	}
	b.state = to
	return nil
}

func (d *memDriver) Destroy(ctx context.Context, id string) error {
	end, err := d.do(ctx, "destroy", id)
	if end != nil {
		defer end()
	}
	if err != nil {
		return err
	}
	d.mu.Lock()
	b := d.boxes[id]
	delete(d.boxes, id)
	d.mu.Unlock()
	if b == nil {
		return nil
	}
	return b.end(ctx)
}

// end disconnects the guest and removes the files that it wrote.
func (b *box) end(ctx context.Context) error {
	b.disconnect()
	for { // the guest writes until it notices its end
		if err := os.RemoveAll(b.dir); !errors.Is(err, unix.ENOTEMPTY) || ctx.Err() != nil {
			return err
		}
	}
}

func (d *memDriver) List(context.Context) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.boxes)), nil
}

func (d *memDriver) Features() sandbox.Features {
	return sandbox.Features{Isolation: "none", Pause: !d.busyOnly.Load(), Mounts: d.mounts.Load()}
}

// die ends a sandbox as if on its own.
func (d *memDriver) die(id string, reason sandbox.Reason) {
	d.mu.Lock()
	b := d.boxes[id]
	b.state, b.reason = sandbox.StateDead, reason
	d.mu.Unlock()
	b.disconnect()
	os.RemoveAll(b.work()) // this ends commands that wait for a file there
}

// stop ends all guests.
func (d *memDriver) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, b := range d.boxes {
		if err := b.end(context.Background()); err != nil {
			d.t.Errorf("removing %s: %v", id, err)
		}
	}
}

// until waits until the number of sandboxes is n.
func (d *memDriver) until(n int) {
	d.t.Helper()
	for {
		d.mu.Lock()
		have, changed := len(d.boxes), d.changed
		d.mu.Unlock()
		if have == n {
			return
		}
		select {
		case <-changed:
		case <-d.t.Context().Done():
			d.t.Fatalf("%d sandboxes exist, want %d", have, n)
		}
	}
}

// idle waits until no call is running.
func (d *memDriver) idle() {
	for {
		d.mu.Lock()
		busy, changed := len(d.busy), d.changed
		d.mu.Unlock()
		if busy == 0 {
			return
		}
		<-changed
	}
}

func (d *memDriver) count(op string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ops[op]
}

func (b *box) work() string { return filepath.Join(b.dir, "work") }

func (b *box) disconnect() {
	if b.stop != nil {
		b.stop()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		c.Close()
	}
}

// A pipeListener accepts connections from a channel.
type pipeListener struct {
	accept <-chan net.Conn
	done   <-chan struct{}
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l pipeListener) Close() error   { return nil }
func (l pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

var (
	errHost    = errors.New("secret words of the host")
	errRefused = errors.New("connection refused")
)
