package container

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/layer"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
)

// A crasher blocks the server at one place of a container's start until the server has died.
// Places are calls of the driver and of the store, and the reading of an upload.
type crasher struct {
	*harness
	mu            sync.Mutex
	place         string
	reached, dead chan struct{}
}

func newCrasher(h *harness) *crasher {
	c := &crasher{harness: h}
	open := h.opts.OpenFile
	h.opts.OpenFile = func(ctx context.Context, p berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File,
		error) {
		body, f, err := open(ctx, p, id)
		return &slowFile{ReadCloser: body, pass: c.pass}, f, err
	}
	h.k.opts.OpenFile = h.opts.OpenFile
	h.driver.mu.Lock()
	h.driver.fail = func(_ context.Context, op, _ string) error { return c.pass("before " + op) }
	h.driver.done = func(_ context.Context, op, _ string) { _ = c.pass("after " + op) }
	h.driver.mu.Unlock()
	h.store.mu.Lock()
	h.store.fail = func(op string) error { return c.pass("before store " + op) }
	h.store.saved = func(op string) { _ = c.pass("after store " + op) }
	h.store.mu.Unlock()
	return c
}

// stopAt blocks the server when it reaches a place for the first time.
func (c *crasher) stopAt(place string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.place, c.reached, c.dead = place, make(chan struct{}), make(chan struct{})
}

// pass returns immediately, except at the blocked place. There it returns an error after the server
// has died.
func (c *crasher) pass(place string) error {
	c.mu.Lock()
	stops := c.place == place
	if stops {
		c.place = ""
		close(c.reached)
	}
	dead := c.dead
	c.mu.Unlock()
	if !stops {
		return nil
	}
	<-dead
	return errStopping
}

// die crashes the server when it has reached the place.
func (c *crasher) die() {
	c.t.Helper()
	select {
	case <-c.reached:
	case <-c.t.Context().Done():
		c.t.Fatalf("the server did not reach %q", c.place)
	}
	life, dead, all := c.k.work.life, c.dead, c.k.index.all()
	context.AfterFunc(life, func() {
		for _, s := range all { // connections may break before the blocked place returns
			s.client.Close()
		}
		close(dead)
	})
	c.crash()
	c.driver.idle()
}

// A slowFile reaches a place after its first bytes.
type slowFile struct {
	io.ReadCloser
	read bool
	pass func(string) error
}

func (f *slowFile) Read(p []byte) (int, error) {
	if f.read {
		if err := f.pass("in a file"); err != nil {
			return 0, err
		}
		return f.ReadCloser.Read(p)
	}
	f.read = true
	return f.ReadCloser.Read(p[:min(2, len(p))])
}

// startPlaces are the places in every start of a sandbox.
var startPlaces = []string{"before create", "after create", "before start", "after start", "before dial", "after dial",
	"in a file", "before store update", "after store update"}

// wantStarted checks that a container has all requested parts, in the only sandbox that exists,
// and that its first command runs once.
func (c *crasher) wantStarted(id berth.ContainerID, files string) {
	c.t.Helper()
	const command = `echo ran >>ran; cat a.txt old ran 2>/dev/null; echo "$COLOUR"`
	if got, err := c.trySh(c.t.Context(), id, berth.NewID(berth.PrefixShellCall), command); err != nil ||
		got != files+"ran\nblue\n" {
		c.t.Fatalf("got %q, %v, want %q", got, err, files+"ran\nblue\n")
	}
	got := c.get(id)
	if got.Status != berth.ContainerRunning || got.Berth.Starting || got.Berth.Reason != "" {
		c.t.Errorf("got %s %+v", got.Status, got.Berth)
	}
	if spec := c.driver.box(string(id)).spec; spec.Limits.Memory != 4<<30 {
		c.t.Errorf("its limits are %+v", spec.Limits)
	}
	all, _, err := c.k.files.List(c.t.Context(), mine, id, store.Page{Limit: 10, Ascending: true})
	if err != nil || len(all) < 2 {
		c.t.Fatalf("got files %v, %v", all, err)
	}
	for _, f := range all {
		if f.Path == "/mnt/data/a.txt" && f.Source != "user" {
			c.t.Errorf("got %+v, want a user's file", f)
		}
	}
}

// TestCrashDuringStart kills the server at each step of a container's start, once and twice.
// The container ends up as if there had been no crash.
func TestCrashDuringStart(t *testing.T) {
	for _, place := range startPlaces {
		t.Run(place, func(t *testing.T) {
			c := newCrasher(newHarness(t))
			c.uploads["file-1"] = upload{"a.txt", "hello "}
			c.stopAt(place)
			id := c.create(CreateRequest{Name: "mine", MemoryLimit: "4g", FileIDs: []berth.FileID{"file-1"},
				Env: []string{"COLOUR=blue"}}).ID
			c.die()
			if place != "after store update" { // otherwise it has been started
				c.stopAt(place)
				c.start()
				c.die()
			}
			c.start()
			c.wantStarted(id, "hello ")
			c.driver.until(1)
		})
	}
}

// TestCrashDuringStartFromPool is TestCrashDuringStart for a sandbox from a pool. Settings that
// were bound to it are bound to another one.
func TestCrashDuringStartFromPool(t *testing.T) {
	for _, place := range []string{"in a file", "before store update", "after store update"} {
		t.Run(place, func(t *testing.T) {
			c := newCrasher(newHarness(t, func(o *Options) { o.Pools = []PoolOptions{{Size: 1, MemoryLimit: "4g"}} }))
			c.full()
			c.uploads["file-1"] = upload{"a.txt", "hello "}
			c.stopAt(place)
			id := c.create(CreateRequest{MemoryLimit: "4g", FileIDs: []berth.FileID{"file-1"},
				Env: []string{"COLOUR=blue"}}).ID
			c.die()
			c.start()
			c.wantStarted(id, "hello ")
			c.full()
			c.driver.until(2)
		})
	}
}

// TestCrashDuringStartFromSnapshot is TestCrashDuringStart for containers that start from a
// snapshot, which expires while no server runs.
func TestCrashDuringStartFromSnapshot(t *testing.T) {
	for _, place := range []string{"before create", "after start", "after dial", "before store update"} {
		t.Run(place, func(t *testing.T) {
			h, a := newArchive(t)
			c := newCrasher(h)
			c.uploads["file-1"] = upload{"a.txt", "hello "}
			first := c.create(CreateRequest{MemoryLimit: "4g", FileIDs: []berth.FileID{"file-1"}}).ID
			c.sh(first, "echo old >old")
			now := h.time().Unix()
			s, err := c.k.snapshots.make(t.Context(), c.k.index.lookup(mine, first),
				&berth.Snapshot{Cause: berth.SnapshotExpired, ExpiresAt: new(now + 3600)})
			if err != nil {
				t.Fatal(err)
			}
			c.stopAt(place)
			id := c.create(CreateRequest{MemoryLimit: "4g", Source: fromSnapshot(s.ID)}).ID
			c.die()
			a.expireAll(t, c.store)
			c.start()
			if got := c.sh(id, "cat a.txt old"); got != "hello old\n" {
				t.Errorf("got %q", got)
			}
			c.driver.until(2)
		})
	}
}

// TestCrashDuringFork kills the server at each step of a fork. The fork is whole if its start was
// saved, and otherwise it has ended and nothing of it is left; the source continues.
func TestCrashDuringFork(t *testing.T) {
	for place, whole := range map[string]bool{"before create": false, "after start": false, "after dial": false,
		"before store file":   false,
		"before store update": false, "after store update": true} {
		t.Run(place, func(t *testing.T) {
			h, a := newArchive(t)
			c := newCrasher(h)
			c.uploads["file-1"] = upload{"a.txt", "hello "}
			first := c.create(CreateRequest{FileIDs: []berth.FileID{"file-1"}}).ID
			c.sh(first, "echo old >old")
			c.stopAt(place)
			forked := make(chan error, 1)
			go func() {
				_, err := c.k.Fork(t.Context(), byMe, first, ForkRequest{})
				forked <- err
			}()
			c.die()
			if err := <-forked; err == nil && !whole {
				t.Error("Fork returned no error")
			}
			c.start()
			all, _, err := c.k.List(t.Context(), mine, "", store.Page{Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			running := 1
			for _, fork := range all {
				if fork.ID == first || fork.Status != berth.ContainerRunning {
					continue
				}
				running++
				if got := c.sh(fork.ID, "cat a.txt old"); got != "hello old\n" || fork.Berth.ForkedFrom != first {
					t.Errorf("got %q in %+v", got, fork)
				}
				if files := c.listed(fork.ID); !slices.Contains(files, "/mnt/data/a.txt 6 user") {
					t.Errorf("got files %q", files)
				}
			}
			if whole != (running == 2) {
				t.Errorf("%d containers are running", running)
			}
			if got := c.sh(first, "cat a.txt old"); got != "hello old\n" {
				t.Errorf("got %q in the source", got)
			}
			c.driver.until(running)
			if left := len(a.list(t, mine)) + a.blobs(t); left > 0 {
				t.Errorf("the fork left %d snapshots and contents", left)
			}
		})
	}
}

// expireAll makes all snapshots expire.
func (a *archive) expireAll(t *testing.T, db Store) {
	t.Helper()
	for _, s := range a.list(t, mine) {
		_, err := db.UpdateObject(t.Context(), mine, store.ObjectKey{Kind: snapshot.Kind, ID: string(s.ID)},
			func(o *store.Object) error {
				o.ExpiresAt = 1 // long ago
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func emptyTar() io.Reader {
	var b bytes.Buffer
	_ = tar.NewWriter(&b).Close()
	return &b
}

func noTemplate(string) (Template, error) {
	return Template{}, berth.Errorf(berth.CodeNotFound, "No such template.")
}

// A memoryDriver starts sandboxes from memory as if without it.
type memoryDriver struct{ *memDriver }

func (d memoryDriver) Checkpoint(context.Context, string, io.Writer) error { return nil }

func (d memoryDriver) Restore(ctx context.Context, id string, r io.Reader) error {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	if err := d.Start(ctx, id); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops["restore"]++
	return nil
}

// TestCrashDuringRestore kills the server while it restores a container's memory. The restored
// processes have no network before the restore is saved, and are not restored again afterwards.
func TestCrashDuringRestore(t *testing.T) {
	for place, restores := range map[string]int{"before create": 1, "after start": 2, "before store update": 2,
		"after store update": 1} {
		t.Run(place, func(t *testing.T) {
			h, a := newArchive(t, func(o *Options) { o.Driver = memoryDriver{o.Driver.(*memDriver)} })
			c := newCrasher(h)
			r := &snapshot.Record{Isolation: "none",
				Snapshot: &berth.Snapshot{Memory: true, MemoryLimit: "4g", Template: "sha256:1",
					Cause: berth.SnapshotRequested}}
			err := a.Create(t.Context(), mine, r, func(w io.Writer) (layer.Made, error) {
				return layer.Make(w, emptyTar(), t.TempDir(), layer.Limits{})
			})
			if err != nil {
				t.Fatal(err)
			}
			c.stopAt(place)
			id := c.create(CreateRequest{Source: fromSnapshot(r.Snapshot.ID)}).ID
			c.die()
			c.start()
			if got := c.sh(id, "echo here"); got != "here\n" {
				t.Errorf("got %q", got)
			}
			if got := c.driver.count("restore"); got != restores {
				t.Errorf("restored %d times, want %d", got, restores)
			}
			if o, err := c.store.GetObject(t.Context(), mine, startKey(id)); err == nil {
				t.Errorf("its start record still exists: %v", o)
			}
			c.driver.until(1)
			c.crash()
			c.start()
			if got := c.sh(id, "echo here"); got != "here\n" || c.driver.count("restore") != restores {
				t.Errorf("after another restart: got %q, %d restores", got, c.driver.count("restore"))
			}
		})
	}
}

// A container whose start was interrupted gets its volumes, which cannot be removed before.
func TestCrashDuringStartWithVolume(t *testing.T) {
	var volumes *volume.Service
	dir := t.TempDir()
	h := newHarness(t, func(o *Options) {
		o.Driver.(*memDriver).mounts.Store(true)
		var err error
		volumes, err = volume.New(volume.Options{Dir: dir, Objects: o.Store, Seal: o.Seal, Plain: true})
		if err != nil {
			t.Fatal(err)
		}
		o.Volumes = volumes
	})
	c := newCrasher(h)
	v, err := volumes.Create(t.Context(), byMe, volume.CreateRequest{Name: "data"})
	if err != nil {
		t.Fatal(err)
	}
	c.stopAt("after create")
	id := c.create(CreateRequest{Source: berth.ContainerSource{Volumes: []berth.VolumeMount{{Name: "data"}}}}).ID
	c.die()
	c.start()
	c.sh(id, "true")
	mounts := c.driver.box(string(id)).spec.Mounts
	if want := (sandbox.Mount{Name: "data", Volume: string(v.ID), Path: filepath.Join(dir, string(mine), string(v.ID),
		"content")}); len(mounts) != 1 || mounts[0] != want {
		t.Errorf("got %+v, want %+v", mounts, want)
	}
	wantError(t, volumes.Delete(t.Context(), byMe, v.ID), berth.CodeConflict, "")
}

// An interrupted start that cannot be repeated ends with the cause.
func TestCrashDuringStartThatFails(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(c *crasher, id berth.ContainerID)
		words     string
	}{
		"the upload is gone": {func(c *crasher, _ berth.ContainerID) {
			delete(c.uploads, "file-1")
		}, "its files could not be copied in"},
		"the template is gone": {func(c *crasher, _ berth.ContainerID) {
			c.opts.Template = noTemplate
		}, "its template is gone"},
		"the driver fails": {func(c *crasher, _ berth.ContainerID) {
			c.driver.fail = func(_ context.Context, op, _ string) error {
				if op == "start" {
					return errHost
				}
				return nil
			}
		}, "its sandbox did not start"},
		"the record is damaged": {func(c *crasher, id berth.ContainerID) {
			_, err := c.store.UpdateObject(c.t.Context(), mine, startKey(id), func(o *store.Object) error {
				o.Body = []byte(`"AAAA"`)
				return nil
			})
			if err != nil {
				c.t.Fatal(err)
			}
		}, "its start record cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrasher(newHarness(t))
			c.uploads["file-1"] = upload{"a.txt", "hello "}
			c.stopAt("after start")
			id := c.create(CreateRequest{FileIDs: []berth.FileID{"file-1"}}).ID
			c.die()
			tc.meanwhile(c, id)
			waits, result := make(chan struct{}), make(chan error, 1)
			c.opts.Bounds.Starts = 1
			c.start()
			go func() {
				close(waits)
				_, err := c.trySh(t.Context(), id, "call", "true")
				result <- err
			}()
			<-waits
			if err := <-result; berth.ErrorCode(err) == "" {
				t.Errorf("its user got %v", err)
			}
			for c.get(id).Status == berth.ContainerRunning {
				time.Sleep(time.Millisecond)
			}
			if got := c.get(id); got.Status != berth.ContainerExpired || got.Berth.Reason != "host" ||
				got.Berth.Starting {
				t.Errorf("got %s %+v", got.Status, got.Berth)
			}
			if !strings.Contains(c.log.String(), tc.words) {
				t.Errorf("the log lacks %q", tc.words)
			}
			c.driver.until(0)
		})
	}
}

// A server that stops cleanly and cannot wait for a container's start leaves the start to the
// next server. Users get the error that the server is stopping, not that the start failed.
func TestCloseLeavesStart(t *testing.T) {
	c := newCrasher(newHarness(t))
	c.uploads["file-1"] = upload{"a.txt", "hello "}
	c.stopAt("in a file")
	id := c.create(CreateRequest{MemoryLimit: "4g", FileIDs: []berth.FileID{"file-1"}, Env: []string{"COLOUR=blue"}}).ID
	result := make(chan error, 1)
	go func() {
		_, err := c.trySh(t.Context(), id, "call", "true")
		result <- err
	}()
	c.die()
	wantError(t, <-result, berth.CodeUnavailable, "", "stopping")
	c.start()
	c.wantStarted(id, "hello ")
}

// The environment of a container, which may hold secrets, is encrypted in the store.
func TestStartRecordIsSealed(t *testing.T) {
	h := newHarness(t)
	id := h.create(CreateRequest{Env: []string{"TOKEN=canary-in-the-environment"}}).ID
	o, err := h.store.GetObject(t.Context(), mine, startKey(id))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(o.Body), "canary") {
		t.Errorf("got %s", o.Body)
	}
	h.sh(id, "true")
	if err := h.k.Delete(t.Context(), mine, id); err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.GetObject(t.Context(), mine, startKey(id)); err == nil {
		t.Error("its start record still exists")
	}
}

// An engine may complete a call of a dead server after the next server has removed the sandbox.
// The sandbox that appears then is removed too.
func TestCrashDuringStartFinishedLate(t *testing.T) {
	c := newCrasher(newHarness(t))
	c.uploads["file-1"] = upload{"a.txt", "hello "}
	c.stopAt("before create")
	id := c.create(CreateRequest{MemoryLimit: "4g", FileIDs: []berth.FileID{"file-1"}, Env: []string{"COLOUR=blue"}}).ID
	c.die()
	var late sync.Once
	c.driver.mu.Lock()
	c.driver.done = func(_ context.Context, op, _ string) {
		if op != "destroy" {
			return
		}
		late.Do(func() {
			c.driver.mu.Lock()
			defer c.driver.mu.Unlock()
			c.driver.boxes[string(id)] = &box{spec: sandbox.Spec{ID: string(id)}, state: sandbox.StateCreated,
				dir: t.TempDir()}
		})
	}
	c.driver.mu.Unlock()
	c.start()
	c.wantStarted(id, "hello ")
	c.driver.until(1)
}
