package session

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/store"
)

// boxes are containers without sandboxes.
type boxes struct {
	mu   sync.Mutex
	all  []*berth.Container // the oldest first
	reqs []container.CreateRequest
}

func (b *boxes) Create(_ context.Context, _ berth.Caller, req container.CreateRequest) (*berth.Container, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.all {
		if req.UniqueName && c.Name == req.Name && c.Status == berth.ContainerRunning {
			return nil, berth.Errorf(berth.CodeConflict, "The name is taken.")
		}
	}
	c := &berth.Container{ID: berth.ContainerID("cntr_" + strconv.Itoa(len(b.all)+1)), Name: req.Name,
		Status: berth.ContainerRunning}
	c.Berth.FromSnapshot = req.Source.SnapshotID
	b.all, b.reqs = append(b.all, c), append(b.reqs, req)
	return c, nil
}

func (b *boxes) Get(_ context.Context, _ berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.all {
		if c.ID == id {
			copied := *c
			return &copied, nil
		}
	}
	return nil, berth.NotFound("Container", id)
}

func (b *boxes) List(_ context.Context, _ berth.ProjectID, name string, _ store.Page) ([]*berth.Container, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []*berth.Container
	for _, c := range b.all {
		if c.Name == name {
			copied := *c
			found = append(found, &copied)
		}
	}
	slices.Reverse(found)
	return found, false, nil
}

func (b *boxes) Delete(_ context.Context, _ berth.ProjectID, id berth.ContainerID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = slices.DeleteFunc(b.all, func(c *berth.Container) bool { return c.ID == id })
	return nil
}

// expire ends a container, which leaves a snapshot.
func (b *boxes) expire(id berth.ContainerID, left berth.SnapshotID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.all {
		if c.ID == id {
			c.Status, c.Berth.LastSnapshot = berth.ContainerExpired, left
		}
	}
}

func (b *boxes) ids() []berth.ContainerID {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []berth.ContainerID
	for _, c := range b.all {
		ids = append(ids, c.ID)
	}
	return ids
}

var me = berth.Caller{Project: "proj_a"}

func newTest(t *testing.T, change func(*Options)) (*Service, *boxes, *clock.Manual) {
	b, now := &boxes{}, clock.NewManual(time.Unix(1_000_000, 0))
	o := Options{Containers: b, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Clock: now, Snapshots: true}
	if change != nil {
		change(&o)
	}
	return New(o), b, now
}

func mustOpen(t *testing.T, s *Service, spec Spec) (*Session, func()) {
	t.Helper()
	sess, release, err := s.Open(me.Project, spec)
	if err != nil {
		t.Fatal(err)
	}
	return sess, release
}

// A session ends after it was idle, with its own container. A use postpones that.
func TestIdle(t *testing.T) {
	t.Parallel()
	s, b, now := newTest(t, nil)
	sess, release := mustOpen(t, s, Spec{})
	ended := 0
	sess.OnEnd(func() { ended++ })
	id, err := sess.Container(t.Context(), me)
	if err != nil || id != "cntr_1" || sess.Current() != id {
		t.Fatalf("container %s, %v", id, err)
	}
	now.Advance(24 * time.Hour) // in use
	release()
	now.Advance(29 * time.Minute)
	again, leave, err := s.Use(me.Project, sess.ID)
	if err != nil || again != sess {
		t.Fatalf("use: %v, %v", again, err)
	}
	_, leave2, err := s.Use(me.Project, sess.ID)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	now.Advance(time.Hour)
	leave2()
	now.Advance(29 * time.Minute)
	if ended != 0 || s.Len(me.Project) != 1 {
		t.Errorf("it ended %d times, %d sessions are left", ended, s.Len(me.Project))
	}
	now.Advance(time.Minute)
	s.Close()
	if ended != 1 || s.Len(me.Project) != 0 || len(b.ids()) != 0 {
		t.Errorf("it ended %d times, %d sessions and %v are left", ended, s.Len(me.Project), b.ids())
	}
	if _, _, err := s.Use(me.Project, sess.ID); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("use after the end: %v", err)
	}
	if _, err := sess.Container(t.Context(), me); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("container after the end: %v", err)
	}
	s.End(sess)
	s.Close()
}

// Sessions are bounded, for each project and together, and belong to their projects.
func TestBounds(t *testing.T) {
	t.Parallel()
	s, _, _ := newTest(t, func(o *Options) { o.PerProject, o.Total = 2, 3 })
	first, release := mustOpen(t, s, Spec{})
	mustOpen(t, s, Spec{})
	if _, _, err := s.Open(me.Project, Spec{}); berth.ErrorCode(err) != berth.CodeRateLimited {
		t.Errorf("a third session: %v", err)
	}
	if _, _, err := s.Open("proj_b", Spec{}); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Open("proj_c", Spec{}); berth.ErrorCode(err) != berth.CodeRateLimited {
		t.Errorf("a fourth session: %v", err)
	}
	if _, _, err := s.Use("proj_b", first.ID); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("another project's session: %v", err)
	}
	s.End(first)
	release() // after its end
	if _, _, err := s.Open(me.Project, Spec{}); err != nil {
		t.Error(err)
	}
}

// A named container is shared, stays, and continues from the snapshot that it leaves.
func TestNamed(t *testing.T) {
	t.Parallel()
	s, b, _ := newTest(t, nil)
	a, _ := mustOpen(t, s, Spec{Name: "box", Template: "x", IdleMinutes: 5})
	other, _ := mustOpen(t, s, Spec{Name: "box"})
	var group sync.WaitGroup
	var ids [8]berth.ContainerID
	for i := range ids {
		group.Go(func() {
			sess := a
			if i%2 == 1 {
				sess = other
			}
			ids[i], _ = sess.Container(t.Context(), me)
		})
	}
	group.Wait()
	if slices.ContainsFunc(ids[:], func(id berth.ContainerID) bool { return id != "cntr_1" }) || len(b.ids()) != 1 {
		t.Fatalf("containers %v of %v", ids, b.ids())
	}
	if req := b.reqs[0]; !req.UniqueName || req.Source.OnExpiry != berth.OnExpirySnapshot {
		t.Errorf("created with %+v", req)
	}
	s.End(a)
	s.Close()
	b.expire("cntr_1", "snap_1")
	if id, err := other.Container(t.Context(), me); err != nil || id != "cntr_2" ||
		b.reqs[1].Source.SnapshotID != "snap_1" {
		t.Errorf("after it expired: %s, %v, %+v", id, err, b.reqs)
	}
	for _, name := range []string{"cntr_1", "cntr_9"} { // expired, and unknown
		if _, err := s.Find(t.Context(), me, Spec{Name: name}); berth.ErrorCode(err) != berth.CodeNotFound {
			t.Errorf("find %s: %v", name, err)
		}
		if id, err := s.Existing(t.Context(), me.Project, name); err != nil || id != "" {
			t.Errorf("existing %s: %q, %v", name, id, err)
		}
	}
	if id, err := s.Existing(t.Context(), me.Project, "box"); err != nil || id != "cntr_2" {
		t.Errorf("existing: %q, %v", id, err)
	}
}

// A container of its own that has ended is replaced, and both end with the session.
func TestReplaced(t *testing.T) {
	t.Parallel()
	s, b, _ := newTest(t, nil)
	sess, _ := mustOpen(t, s, Spec{})
	first, err := sess.Container(t.Context(), me)
	b.expire(first, "")
	second, again := sess.Container(t.Context(), me)
	if err := errors.Join(err, again); err != nil || first == second {
		t.Fatalf("%s, then %s, %v", first, second, err)
	}
	s.End(sess)
	s.Close()
	if left := b.ids(); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
}

// A container of a spec that ends leaves no snapshot.
func TestEnds(t *testing.T) {
	s, b, _ := newTest(t, nil)
	for _, ends := range []bool{false, true} {
		if _, err := s.Find(t.Context(), me, Spec{Name: "a" + strconv.FormatBool(ends), Ends: ends}); err != nil {
			t.Fatal(err)
		}
		if got := b.reqs[len(b.reqs)-1].Source.OnExpiry == berth.OnExpirySnapshot; got == ends {
			t.Errorf("ends %t: a snapshot is %t", ends, got)
		}
	}
}
