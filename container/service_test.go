package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

const (
	mine   berth.ProjectID = "proj_mine"
	theirs berth.ProjectID = "proj_theirs"
)

// byMe is the caller of these tests.
var byMe = berth.Caller{Project: mine, Key: "key_mine", RequestID: "req_mine"}

// A harness is a Service with its parts, which outlive it.
type harness struct {
	t       *testing.T
	k       *Service
	driver  *memDriver
	store   *spyStore
	uploads map[berth.FileID]upload
	log     *safeBuffer
	opts    Options

	mu  sync.Mutex
	now time.Time
}

type upload struct{ name, content string }

func newHarness(t *testing.T, options ...func(*Options)) *harness {
	t.Parallel()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{t: t, driver: newDriver(t), store: &spyStore{Store: db}, uploads: map[berth.FileID]upload{},
		log: &safeBuffer{}, now: time.Unix(1_800_000_000, 0)}
	h.opts = Options{pressure: func() float64 {
		return 0
	}, Store: h.store, Driver: h.driver, OpenFile: h.openUpload, Seal: seal.New([32]byte{1}),
		Template: func(string) (Template, error) {
			return Template{Template: sandbox.Template{Digest: "sha256:1", Path: "/templates/1"}}, nil
		},
		Log: slog.New(slog.NewTextHandler(io.MultiWriter(h.log, t.Output()), nil))}
	for _, set := range options {
		set(&h.opts)
	}
	if h.opts.clock == nil {
		h.opts.clock = heldClock{clock.System, h.time}
	}
	h.start()
	t.Cleanup(func() {
		h.k.Close()
		h.driver.stop()
		db.Close()
	})
	return h
}

// A heldClock shows the time of a harness, and waits as the system does.
type heldClock struct {
	clock.Clock
	now func() time.Time
}

func (c heldClock) Now() time.Time                  { return c.now() }
func (c heldClock) Since(t time.Time) time.Duration { return c.now().Sub(t) }

// start starts the server on the state that the former one left.
func (h *harness) start() {
	h.t.Helper()
	k, err := New(h.opts)
	if err != nil {
		h.t.Fatal(err)
	}
	h.k = k
	if err := k.Start(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// crash ends the server without further writes to the store.
func (h *harness) crash() {
	k := h.k
	k.work.refuse()
	k.work.stop(0)
	for _, s := range k.index.all() {
		s.client.Close()
	}
}

func (h *harness) time() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// pass advances the time and runs the sweeper.
func (h *harness) pass(d time.Duration) {
	h.mu.Lock()
	h.now = h.now.Add(d)
	h.mu.Unlock()
	h.k.sweeper.sweep(h.t.Context())
}

// settle waits until no work of the service runs in the background.
func (h *harness) settle() { h.k.work.settle() }

func (h *harness) openUpload(_ context.Context, p berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File,
	error) {
	u, ok := h.uploads[id]
	if !ok || p != mine {
		return nil, nil, berth.Errorf(berth.CodeNotFound, "No such File object: %s", id)
	}
	return io.NopCloser(strings.NewReader(u.content)), &berth.File{ID: id, Filename: u.name,
		Bytes: int64(len(u.content))}, nil
}

func (h *harness) create(req CreateRequest) *berth.Container {
	h.t.Helper()
	c, err := h.k.Create(h.t.Context(), byMe, req)
	if err != nil {
		h.t.Fatalf("Create: %v", err)
	}
	return c
}

// ready creates a container and waits until it runs.
func (h *harness) ready() berth.ContainerID {
	h.t.Helper()
	id := h.create(CreateRequest{Name: "test"}).ID
	_, release, err := h.k.leases.hold(h.t.Context(), mine, id)
	if err != nil {
		h.t.Fatalf("hold: %v", err)
	}
	release()
	return id
}

// get returns a container as it is stored.
func (h *harness) get(id berth.ContainerID) *berth.Container {
	h.t.Helper()
	rec, err := h.store.GetContainer(h.t.Context(), mine, id)
	if err != nil {
		h.t.Fatalf("container %s: %v", id, err)
	}
	return rec.Body
}

func (h *harness) work(id berth.ContainerID) string { return h.driver.box(string(id)).work() }

// sh runs one command and returns its output.
func (h *harness) sh(id berth.ContainerID, command string) string {
	h.t.Helper()
	out, err := h.trySh(h.t.Context(), id, berth.NewID(berth.PrefixShellCall), command)
	if err != nil {
		h.t.Fatalf("%s: %v", command, err)
	}
	return out
}

func (h *harness) trySh(ctx context.Context, id berth.ContainerID, callID, command string) (string, error) {
	var out strings.Builder
	for ev, err := range h.k.access.Shell(berth.Caller{Project: mine}, id).Shell(ctx, guest.ShellCall{CallID: callID,
		Commands: []string{command}, Timeout: time.Minute}) {
		if err != nil {
			return out.String(), err
		}
		out.Write(ev.Data)
	}
	return out.String(), nil
}

// A running command has printed "go" and runs until its container is gone or end is called.
type running struct {
	callID string
	done   chan error // receives the error of its call
	stop   context.CancelFunc
}

const untilReleased = `touch held; echo ran >>ran; echo go; while [ -e held ]; do sleep 0.01; done; echo end`

func (h *harness) run(id berth.ContainerID) *running {
	h.t.Helper()
	return h.runFor(berth.Caller{Project: mine, Response: "resp_test"}, id)
}

// runFor is run for a caller.
func (h *harness) runFor(caller berth.Caller, id berth.ContainerID) *running {
	h.t.Helper()
	ctx, stop := context.WithCancel(h.t.Context())
	r := &running{callID: berth.NewID(berth.PrefixShellCall), done: make(chan error, 1), stop: stop}
	begun := make(chan struct{})
	go func() {
		var err error
		var ev guest.ShellEvent
		once := sync.OnceFunc(func() { close(begun) })
		for ev, err = range h.k.access.Shell(caller, id).Shell(ctx, guest.ShellCall{CallID: r.callID,
			Commands: []string{untilReleased}}) {
			if bytes.Contains(ev.Data, []byte("go")) {
				once()
			}
		}
		r.done <- err
	}()
	select {
	case <-begun:
	case err := <-r.done:
		h.t.Fatalf("the command did not start: %v", err)
	}
	return r
}

// wantError checks an error's code and wire code, and that its message contains words.
func wantError(t *testing.T, err error, code berth.Code, wire string, words ...string) {
	t.Helper()
	e, ok := errors.AsType[*berth.Error](err)
	if !ok {
		t.Fatalf("got error %v, want a berth.Error with code %s", err, code)
	}
	if e.Code != code || e.Wire != wire {
		t.Errorf("got %s/%s, want %s/%s: %v", e.Code, e.Wire, code, wire, err)
	}
	for _, w := range words {
		if !strings.Contains(e.Message, w) {
			t.Errorf("message %q does not contain %q", e.Message, w)
		}
	}
}

func wantExpired(t *testing.T, err error, id berth.ContainerID, words ...string) {
	t.Helper()
	wantError(t, err, berth.CodeInvalid, "container_expired", append(words, "Container is expired.", string(id))...)
}

// A spyStore counts and breaks writes of a Store.
type spyStore struct {
	Store
	mu      sync.Mutex
	updates int
	fail    func(op string) error // called before a write; may be nil
	saved   func(op string)       // called after an update; may be nil
	read    func()                // called before the next list of files; may be nil
}

// reading sets f to be called before the next list of files is read.
func (s *spyStore) reading(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = f
}

func (s *spyStore) ContainerFiles(ctx context.Context, p berth.ProjectID, id berth.ContainerID) ([]*berth.ContainerFile,
	error) {
	s.mu.Lock()
	read := s.read
	s.read = nil
	s.mu.Unlock()
	if read != nil {
		read()
	}
	return s.Store.ContainerFiles(ctx, p, id)
}

func (s *spyStore) write(op string) error {
	s.mu.Lock()
	s.updates++
	fail := s.fail
	s.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(op)
}

func (s *spyStore) failing(f func(op string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

func (s *spyStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.updates
}

func (s *spyStore) CreateContainer(ctx context.Context, c *store.Container, also ...*store.Object) error {
	if err := s.write("create"); errors.Is(err, errSavedAnyway) {
		return errors.Join(err, s.Store.CreateContainer(ctx, c, also...))
	} else if err != nil {
		return err
	}
	return s.Store.CreateContainer(ctx, c, also...)
}

func (s *spyStore) UpdateContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
	change func(*berth.Container) error) (*store.Container, error) {
	if err := s.write("update"); err != nil {
		return nil, err
	}
	c, err := s.Store.UpdateContainer(ctx, p, id, change)
	s.mu.Lock()
	saved := s.saved
	s.mu.Unlock()
	if saved != nil {
		saved("update")
	}
	return c, err
}

func (s *spyStore) PutContainerFile(ctx context.Context, p berth.ProjectID, f *berth.ContainerFile) error {
	if err := s.write("file"); err != nil {
		return err
	}
	return s.Store.PutContainerFile(ctx, p, f)
}

func (s *spyStore) DeleteContainer(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	if err := s.write("delete"); err != nil {
		return err
	}
	return s.Store.DeleteContainer(ctx, p, id)
}

var errSavedAnyway = fmt.Errorf("failed, but saved")

// A safeBuffer is a bytes.Buffer for concurrent use.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var _ sandbox.Driver = (*memDriver)(nil)
