package container

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob/blobtest"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/layer"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
	"github.com/google/go-cmp/cmp"
)

// An archive is the snapshot store of a harness.
type archive struct {
	*snapshot.Service
	bucket *blobtest.Storage
}

// newArchive returns a harness that stores snapshots. Its templates are the default one and
// "other".
func newArchive(t *testing.T, options ...func(*Options)) (*harness, *archive) {
	a := &archive{bucket: blobtest.New(t)}
	rootfs := t.TempDir()
	var h *harness
	now := func() time.Time { return h.time() }
	h = newHarness(t, append([]func(*Options){func(o *Options) {
		a.Service = snapshot.New(snapshot.Options{Objects: o.Store, Contents: a.bucket, Seal: o.Seal,
			Clock: heldClock{clock.System, now}})
		o.Snapshots = a.Service
		o.Template = func(ref string) (Template, error) {
			switch ref {
			case "", "sha256:1":
				return Template{Template: sandbox.Template{Digest: "sha256:1", Path: rootfs}}, nil
			case "other", "sha256:2":
				return Template{Template: sandbox.Template{Digest: "sha256:2", Path: rootfs}}, nil
			}
			return Template{}, &berth.Error{Code: berth.CodeNotFound, Param: "berth.template", Message: "Template '" +
				ref + "' not found."}
		}
	}}, options...)...)
	return h, a
}

// list returns the snapshots of a project.
func (a *archive) list(t *testing.T, p berth.ProjectID) []*berth.Snapshot {
	t.Helper()
	all, _, err := a.List(t.Context(), p, store.Page{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// blobs returns the number of stored contents.
func (a *archive) blobs(t *testing.T) int {
	t.Helper()
	return len(a.bucket.Keys())
}

func (h *harness) snapshot(id berth.ContainerID) *berth.Snapshot {
	h.t.Helper()
	s, err := h.k.snapshots.Take(h.t.Context(), mine, id, SnapshotRequest{Name: "saved"})
	if err != nil {
		h.t.Fatalf("Snapshot: %v", err)
	}
	return s
}

func (h *harness) readyFrom(src berth.ContainerSource) berth.ContainerID {
	h.t.Helper()
	id := h.create(CreateRequest{Name: "test", Source: src}).ID
	if _, release, err := h.k.access.Guest(h.t.Context(), berth.Caller{Project: mine}, id); err != nil {
		h.t.Fatalf("Guest: %v", err)
	} else {
		release()
	}
	return id
}

func fromSnapshot(id berth.SnapshotID) berth.ContainerSource {
	return berth.ContainerSource{SnapshotID: id}
}

var leavesSnapshot = berth.ContainerSource{OnExpiry: berth.OnExpirySnapshot}

func TestSnapshot(t *testing.T) {
	h, a := newArchive(t)
	h.uploads["file-1"] = upload{"data.csv", "1,2"}
	first := h.readyFrom(berth.ContainerSource{Template: "other"})
	if err := h.k.files.Add(t.Context(), mine, first, []berth.FileID{"file-1"}); err != nil {
		t.Fatal(err)
	}
	h.put(first, "dir/put", "p")
	h.sh(first, "mkdir -p dir && echo made >dir/made && ln -s made dir/link")
	h.listed(first)
	want := berth.Snapshot{Object: "container.snapshot", ContainerID: first, Name: "saved",
		Cause: berth.SnapshotRequested, Template: "sha256:2", Bytes: 9}
	s := h.snapshot(first)
	got := *s
	got.ID, got.CreatedAt, got.Digest, got.StoredBytes = "", 0, "", 0
	if diff := cmp.Diff(want, got); diff != "" || s.Digest == "" || s.StoredBytes == 0 {
		t.Errorf("got %+v (-want +got):\n%s", s, diff)
	}
	h.sh(first, "rm -r *")
	if err := h.k.Delete(t.Context(), mine, first); err != nil {
		t.Fatal(err)
	}
	for range 2 { // any number of times, even after the container was deleted
		c := h.create(CreateRequest{Name: "again", FileIDs: []berth.FileID{"file-1"}, Source: fromSnapshot(s.ID)})
		if c.Berth.FromSnapshot != s.ID || c.Berth.Template != "sha256:2" {
			t.Errorf("got %+v, want it from %s on its template", c.Berth, s.ID)
		}
		if got, want := h.sh(c.ID,
			"find . -type f | sort; readlink dir/link; cat dir/link data.csv"),
			"./data.csv\n./dir/made\n./dir/put\nmade\nmade\n1,2"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		files := []string{"/mnt/data/data.csv 3 user", "/mnt/data/dir/made 5 assistant", "/mnt/data/dir/put 1 user"}
		if diff := cmp.Diff(files, slices.Sorted(slices.Values(h.listed(c.ID)))); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	}
	if err := a.Delete(t.Context(), mine, s.ID); err != nil {
		t.Fatal(err)
	}
	_, err := h.k.Create(t.Context(), byMe, CreateRequest{Source: fromSnapshot(s.ID)})
	wantError(t, err, berth.CodeNotFound, "", string(s.ID))
}

func TestSourceRefused(t *testing.T) {
	h, _ := newArchive(t)
	id := h.ready()
	s := h.snapshot(id)
	for name, tc := range map[string]struct {
		src   berth.ContainerSource
		code  berth.Code
		param string
	}{
		"template":  {berth.ContainerSource{Template: "none"}, berth.CodeNotFound, "berth.template"},
		"snapshot":  {fromSnapshot("snap_none"), berth.CodeNotFound, "berth.snapshot_id"},
		"both":      {berth.ContainerSource{Template: "other", SnapshotID: s.ID}, berth.CodeInvalid, "berth.template"},
		"on_expiry": {berth.ContainerSource{OnExpiry: "keep"}, berth.CodeInvalid, "berth.on_expiry"},
	} {
		_, err := h.k.Create(t.Context(), byMe, CreateRequest{Source: tc.src})
		if e, ok := errors.AsType[*berth.Error](err); !ok || e.Code != tc.code || e.Param != tc.param {
			t.Errorf("%s: got %v, want %s about %s", name, err, tc.code, tc.param)
		}
	}
	_, err := h.k.Create(t.Context(), berth.Caller{Project: theirs}, CreateRequest{Source: fromSnapshot(s.ID)})
	wantError(t, err, berth.CodeNotFound, "", "Snapshot with id '"+string(s.ID)+"' not found.")
	_, err = h.k.snapshots.Take(t.Context(), theirs, id, SnapshotRequest{})
	wantError(t, err, berth.CodeNotFound, "", string(id))
	h.driver.die(string(id), sandbox.ReasonKilled)
	_, err = h.k.snapshots.Take(t.Context(), mine, id, SnapshotRequest{})
	wantExpired(t, err, id, "its files are gone")
}

func TestNoSnapshots(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	_, err := h.k.snapshots.Take(t.Context(), mine, id, SnapshotRequest{})
	wantError(t, err, berth.CodeInvalid, "", "does not store snapshots")
	for _, src := range []berth.ContainerSource{fromSnapshot("snap_1"), leavesSnapshot} {
		_, err = h.k.Create(t.Context(), byMe, CreateRequest{Source: src})
		wantError(t, err, berth.CodeInvalid, "", "does not store snapshots")
	}
}

// A container that expires leaves a snapshot with its files, for a month.
func TestExpiryLeavesSnapshot(t *testing.T) {
	h, a := newArchive(t)
	id := h.readyFrom(leavesSnapshot)
	h.sh(id, "echo kept >f")
	h.pass(20*time.Minute - time.Second)
	if n := len(a.list(t, mine)); n > 0 {
		t.Fatalf("%d snapshots before its time", n)
	}
	h.pass(time.Second)
	h.driver.until(0)
	all := a.list(t, mine)
	if len(all) != 1 || all[0].Cause != berth.SnapshotExpired || all[0].ContainerID != id ||
		*all[0].ExpiresAt != h.time().Add(30*24*time.Hour).Unix() {
		t.Fatalf("got %+v", all)
	}
	if got := h.get(id); got.Status != berth.ContainerExpired || got.Berth.Reason != "expired" ||
		got.Berth.LastSnapshot != all[0].ID {
		t.Errorf("got %+v", got)
	}
	_, err := h.trySh(t.Context(), id, "c", "true")
	wantExpired(t, err, id, "not used for 20 minutes", "its files are in the snapshot '"+string(all[0].ID)+"'")
	next := h.readyFrom(fromSnapshot(all[0].ID))
	if got := h.sh(next, "cat f"); got != "kept\n" {
		t.Errorf("got %q", got)
	}
	if err := h.k.Delete(t.Context(), mine, id); err != nil { // and its snapshot
		t.Fatal(err)
	}
	if all, blobs := a.list(t, mine), a.blobs(t); len(all) > 0 || blobs > 0 {
		t.Errorf("left after the deletion: %v, %d blobs", all, blobs)
	}
}

// Options.OnExpiry applies to containers without on_expiry.
func TestExpiryDefault(t *testing.T) {
	h, a := newArchive(t, func(o *Options) {
		o.Expiry.Action, o.Expiry.SnapshotLife = berth.OnExpirySnapshot, time.Hour
	})
	h.ready()
	h.readyFrom(berth.ContainerSource{OnExpiry: berth.OnExpiryDelete})
	h.pass(time.Hour)
	h.driver.until(0)
	all := a.list(t, mine)
	if len(all) != 1 || *all[0].ExpiresAt != h.time().Add(time.Hour).Unix() {
		t.Fatalf("got %+v, want one for an hour", all)
	}
	if err := a.Expire(t.Context(), h.time().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if blobs := a.blobs(t); blobs > 0 {
		t.Errorf("%d blobs of expired snapshots are left", blobs)
	}
}

// A use during the snapshot of an expiring container prevents the expiry, and no snapshot is
// left.
func TestUsedWhileLeaving(t *testing.T) {
	h, a := newArchive(t)
	id := h.readyFrom(leavesSnapshot)
	h.mu.Lock()
	h.now = h.now.Add(time.Hour)
	h.mu.Unlock()
	s := h.k.index.lookup(mine, id)
	reached, gate := make(chan struct{}), make(chan struct{})
	h.store.reading(func() { close(reached); <-gate })
	h.k.sweeper.sweep(t.Context())
	<-reached
	if _, err := h.k.Get(t.Context(), mine, id); err != nil { // a use
		t.Fatal(err)
	}
	close(gate)
	for s.expiry.running.Load() {
		time.Sleep(time.Millisecond)
	}
	if got := h.get(id); got.Status != berth.ContainerRunning || got.Berth.LastSnapshot != "" {
		t.Errorf("got %+v", got)
	}
	if all, blobs := a.list(t, mine), a.blobs(t); len(all) > 0 || blobs > 0 {
		t.Errorf("left behind: %v, %d blobs", all, blobs)
	}
}

// A failed snapshot of an expiring container is retried a few times. Then the container expires
// without one.
func TestLeavingFails(t *testing.T) {
	h, a := newArchive(t)
	id := h.readyFrom(leavesSnapshot)
	h.sh(id, "echo kept >f")
	h.k.opts.Template = func(string) (Template, error) { return Template{}, errHost }
	s := h.k.index.lookup(mine, id)
	h.pass(time.Hour)
	for attempt := 1; attempt < snapshotAttempts; attempt++ {
		for s.expiry.running.Load() {
			time.Sleep(time.Millisecond)
		}
		if got := h.get(id); got.Status != berth.ContainerRunning {
			t.Fatalf("it expired after %d attempts", attempt)
		}
		h.pass(snapshotRetry - time.Second) // not yet
		if s.expiry.running.Load() {
			t.Errorf("attempt %d was early", attempt+1)
		}
		h.pass(time.Second)
	}
	h.driver.until(0)
	if got := h.get(id); got.Berth.Reason != "expired" || got.Berth.LastSnapshot != "" || a.blobs(t) > 0 {
		t.Errorf("got %+v, %d blobs", got, a.blobs(t))
	}
	if !strings.Contains(h.log.String(), "failed to make a snapshot of an expiring container") {
		t.Error("the log lacks the failure")
	}
}

// A chain whose container expired continues in a new container with the same settings.
func TestProvideContinues(t *testing.T) {
	h, a := newArchive(t)
	ctx := t.Context()
	env := berth.ShellToolEnvironment{Type: berth.EnvironmentAuto, MemoryLimit: "4g",
		Berth: &berth.ContainerSource{Template: "other", OnExpiry: berth.OnExpirySnapshot}}
	first, err := h.k.provider.Provide(ctx, byMe, env, "")
	if err != nil {
		t.Fatal(err)
	}
	h.sh(first, "echo one >f")
	h.pass(time.Hour)
	h.driver.until(0)
	second, err := h.k.provider.Provide(ctx, byMe, berth.ShellToolEnvironment{Type: berth.EnvironmentAuto}, first)
	if err != nil || second == first {
		t.Fatalf("got %s, %v", second, err)
	}
	if got := h.sh(second, "cat f; echo two >>f"); got != "one\n" {
		t.Errorf("got %q", got)
	}
	was, is := h.get(first), h.get(second)
	if is.Berth.FromSnapshot != was.Berth.LastSnapshot || is.MemoryLimit != "4g" ||
		is.Berth.OnExpiry != berth.OnExpirySnapshot || is.Berth.Template != "sha256:2" {
		t.Errorf("got %+v after %+v", is, was)
	}
	if _, err := h.store.UpdateContainer(ctx, mine, first, func(c *berth.Container) error {
		c.NetworkPolicy = berth.NetworkPolicy{Type: "allowlist", AllowedDomains: []string{"a.example"}}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if req, err := h.k.provider.continued(ctx, mine, CreateRequest{}, first); err != nil ||
		req.NetworkPolicy.Type != "allowlist" || req.ExpiresAfter.Minutes != 20 {
		t.Errorf("got %+v, %v, want the policy of the container that ended", req, err)
	}
	h.pass(time.Hour)
	h.driver.until(0)
	third, err := h.k.provider.Provide(ctx, byMe, env, second) // with the client's first environment
	if err != nil {
		t.Fatal(err)
	}
	if got := h.sh(third, "cat f"); got != "one\ntwo\n" {
		t.Errorf("got %q", got)
	}
	if same, err := h.k.provider.Provide(ctx, byMe, env, third); err != nil || same != third {
		t.Errorf("got %s, %v, want %s", same, err, third)
	}
	byRef := berth.ShellToolEnvironment{Type: berth.EnvironmentReference, ContainerID: second}
	_, err = h.k.provider.Provide(ctx, byMe, byRef, second)
	wantExpired(t, err, second, "in the snapshot")
	for _, s := range a.list(t, mine) {
		if err := a.Delete(ctx, mine, s.ID); err != nil {
			t.Fatal(err)
		}
	}
	_, err = h.k.provider.Provide(ctx, byMe, env, second)
	wantExpired(t, err, second, "which is gone too")
	env.Berth.OnLost = berth.OnLostNew
	fresh, err := h.k.provider.Provide(ctx, byMe, env, second)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.sh(fresh, "ls"); got != "" {
		t.Errorf("got %q in a new container", got)
	}
}

// A container whose snapshot cannot be restored ends with the reason.
func TestRestoreFails(t *testing.T) {
	h, a := newArchive(t)
	first := h.ready()
	s := h.snapshot(first)
	if err := a.bucket.Remove(t.Context(), string(mine)+"/"+string(s.ID)); err != nil {
		t.Fatal(err)
	}
	c := h.create(CreateRequest{Source: fromSnapshot(s.ID)})
	_, err := h.trySh(t.Context(), c.ID, "c", "true")
	wantError(t, err, berth.CodeUnavailable, "container_start_failed", "its snapshot could not be restored")
	h.driver.until(1)
}

// A bundle may name any template for its snapshot: a container starts only from one that its
// project may use.
func TestImportedTemplate(t *testing.T) {
	h, a := newArchive(t, func(o *Options) {
		o.MayName = func(_ context.Context, p berth.ProjectID, ref string) error {
			if p == mine && ref != "sha256:1" {
				return berth.Errorf(berth.CodeNotFound, "Template '%s' not found.", ref)
			}
			return nil
		}
	})
	for _, c := range []struct {
		cause    berth.SnapshotCause
		template string
		want     berth.Code
	}{{berth.SnapshotImported, "other", berth.CodeNotFound}, {berth.SnapshotImported, "sha256:1", ""},
		{berth.SnapshotImported, "", ""}, {berth.SnapshotRequested, "other", ""}} {
		r := &snapshot.Record{Snapshot: &berth.Snapshot{ContainerID: "cntr_1", Cause: c.cause, Template: c.template}}
		if err := a.Service.Create(t.Context(), mine, r, func(w io.Writer) (layer.Made, error) {
			sum := sha256.New()
			err := tar.NewWriter(io.MultiWriter(w, sum)).Close()
			return layer.Made{Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil))}, err
		}); err != nil {
			t.Fatal(err)
		}
		_, err := h.k.Create(t.Context(), byMe, CreateRequest{Source: fromSnapshot(r.Snapshot.ID)})
		if berth.ErrorCode(err) != c.want && (err != nil || c.want != "") {
			t.Errorf("%s above %q: got %v, want %q", c.cause, c.template, err, c.want)
		}
	}
}
