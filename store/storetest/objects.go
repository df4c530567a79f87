package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

func files(t *testing.T, s store.Store) {
	ctx := t.Context()
	var ids []string
	for i := range 5 {
		f := &berth.File{ID: berth.FileID(fmt.Sprintf("file-%d", i)), Object: "file", CreatedAt: int64(i / 2),
			Bytes: int64(i), Filename: "a", Purpose: "user_data", Status: "processed"}
		if i == 4 {
			f.Purpose = "vision"
		}
		if err := s.CreateFile(ctx, mine, f, []byte{byte(i), 1}); err != nil {
			t.Fatal(err)
		}
		got, key, err := s.GetFile(ctx, mine, f.ID)
		if err != nil || !slices.Equal(key, []byte{byte(i), 1}) {
			t.Fatalf("file %d: got key %x, %v", i, key, err)
		}
		same(t, "the file", got, f)
		ids = append(ids, string(f.ID))
	}
	wantErr(t, "an id again", s.CreateFile(ctx, theirs, &berth.File{ID: "file-0"}, nil), store.ErrExists)
	_, _, err := s.GetFile(ctx, theirs, "file-0")
	wantErr(t, "another project's Get", err, store.ErrNotFound)
	wantErr(t, "another project's Delete", s.DeleteFile(ctx, theirs, "file-0"), store.ErrNotFound)
	pages(t, ids, func(p store.Page) ([]string, bool, error) {
		list, more, err := s.ListFiles(ctx, mine, "", p)
		var out []string
		for _, f := range list {
			out = append(out, string(f.ID))
		}
		return out, more, err
	})
	if list, more, err := s.ListFiles(ctx, mine, "vision", store.Page{Limit: 10}); err != nil || len(list) != 1 ||
		more {
		t.Errorf("by purpose: %d files, more %v, %v", len(list), more, err)
	}
	if list, _, err := s.ListFiles(ctx, theirs, "", store.Page{Limit: 10}); err != nil || len(list) != 0 {
		t.Errorf("another project's list: %d files, %v", len(list), err)
	}
	for p, want := range map[berth.ProjectID]int64{mine: 0 + 1 + 2 + 3 + 4, theirs: 0} {
		if n, err := s.FileBytes(ctx, p); err != nil || n != want {
			t.Errorf("%s: got %d bytes, %v, want %d", p, n, err, want)
		}
	}
	if err := s.DeleteFile(ctx, mine, "file-0"); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.GetFile(ctx, mine, "file-0")
	wantErr(t, "a deleted file", err, store.ErrNotFound)
}

// pages reads a list in pages of each size and in both orders. ids are oldest first.
func pages(t *testing.T, ids []string, list func(store.Page) ([]string, bool, error)) {
	t.Helper()
	for _, ascending := range []bool{true, false} {
		want := slices.Clone(ids)
		if !ascending {
			slices.Reverse(want)
		}
		for limit := 1; limit <= len(ids)+1; limit++ {
			var got []string
			for after := ""; ; after = got[len(got)-1] {
				page, more, err := list(store.Page{Limit: limit, After: after, Ascending: ascending})
				if err != nil || len(page) > limit || more && len(page) < limit {
					t.Fatalf("a page of %d after %q: %d rows, more %v, %v", limit, after, len(page), more, err)
				}
				if got = append(got, page...); !more {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("pages of %d, ascending %v: got %v, want %v", limit, ascending, got, want)
			}
		}
	}
	_, _, err := list(store.Page{Limit: 1, After: "unknown"})
	wantErr(t, "a page after an unknown id", err, store.ErrNotFound)
}

func container(i int) *store.Container {
	return &store.Container{Project: mine, Body: &berth.Container{ID: berth.ContainerID(fmt.Sprintf("cntr_%d", i)),
		Object:    "container",
		CreatedAt: int64(i / 2), Status: berth.ContainerRunning, Name: fmt.Sprintf("name %d", i%2), MemoryLimit: "1g",
		ExpiresAfter:  berth.ExpiresAfter{Anchor: "last_active_at", Minutes: 20},
		NetworkPolicy: berth.NetworkPolicy{Type: "disabled"}}}
}

// uniqueNames checks that a running container with a unique name is the only such one of its project.
func uniqueNames(t *testing.T, s store.Store) {
	ctx := t.Context()
	one := func(p berth.ProjectID, id berth.ContainerID, unique bool) *store.Container {
		c := container(0)
		c.Project, c.Body.ID, c.Body.Name, c.Body.Berth.UniqueName = p, id, "name 1", unique
		return c
	}
	remove := func(p berth.ProjectID, id berth.ContainerID) {
		if err := s.DeleteContainer(ctx, p, id); err != nil {
			t.Fatal(err)
		}
	}
	create := func(c *store.Container) {
		if err := s.CreateContainer(ctx, c); err != nil {
			t.Fatalf("%s: %v", c.Body.ID, err)
		}
	}
	create(one(mine, "cntr_unique", true)) // others have the name, but not as a unique one
	wantErr(t, "a unique name again", s.CreateContainer(ctx, one(mine, "cntr_again", true)), store.ErrExists)
	_, err := s.GetContainer(ctx, mine, "cntr_again")
	wantErr(t, "the refused container", err, store.ErrNotFound)
	create(one(mine, "cntr_repeated", false))
	create(one(theirs, "cntr_theirs", true))
	if _, err := s.UpdateContainer(ctx, mine, "cntr_unique", func(c *berth.Container) error {
		c.LastActiveAt++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.UpdateContainer(ctx, mine, "cntr_unique", func(c *berth.Container) error {
		c.Status = berth.ContainerExpired
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	create(one(mine, "cntr_next", true)) // the first has ended
	remove(mine, "cntr_next")
	create(one(mine, "cntr_last", true)) // the next was deleted
	for _, id := range []berth.ContainerID{"cntr_unique", "cntr_repeated", "cntr_last"} {
		remove(mine, id)
	}
	remove(theirs, "cntr_theirs")
}

func containers(t *testing.T, s store.Store) {
	ctx := t.Context()
	var ids []string
	for i := range 5 {
		c := container(i)
		if err := s.CreateContainer(ctx, c); err != nil {
			t.Fatal(err)
		}
		got, err := s.GetContainer(ctx, mine, c.Body.ID)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "the container", got, c)
		ids = append(ids, string(c.Body.ID))
	}
	wantErr(t, "an id again", s.CreateContainer(ctx, container(0)), store.ErrExists)
	uniqueNames(t, s)
	_, err := s.GetContainer(ctx, theirs, "cntr_0")
	wantErr(t, "another project's Get", err, store.ErrNotFound)
	_, err = s.UpdateContainer(ctx, theirs, "cntr_0", func(*berth.Container) error { return nil })
	wantErr(t, "another project's Update", err, store.ErrNotFound)
	wantErr(t, "another project's Delete", s.DeleteContainer(ctx, theirs, "cntr_0"), store.ErrNotFound)
	pages(t, ids, func(p store.Page) ([]string, bool, error) {
		list, more, err := s.ListContainers(ctx, mine, "", p)
		var out []string
		for _, c := range list {
			out = append(out, string(c.Body.ID))
		}
		return out, more, err
	})
	if list, _, err := s.ListContainers(ctx, mine, "name 1", store.Page{Limit: 10}); err != nil || len(list) != 2 {
		t.Errorf("by name: %d containers, %v", len(list), err)
	}
	refused := errors.New("refused")
	_, err = s.UpdateContainer(ctx, mine, "cntr_0", func(c *berth.Container) error { c.Name = "lost"; return refused })
	wantErr(t, "a change that is refused", err, refused)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, err := s.UpdateContainer(ctx, mine, "cntr_0", func(c *berth.Container) error {
				c.LastActiveAt++
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if c, err := s.GetContainer(ctx, mine, "cntr_0"); err != nil || c.Body.LastActiveAt != 20 ||
		c.Body.Name != "name 0" {
		t.Errorf("after 20 changes at once: %+v, %v", c.Body, err)
	}
	if _, err := s.UpdateContainer(ctx, mine, "cntr_1", func(c *berth.Container) error {
		c.Status = berth.ContainerExpired
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if running, err := s.RunningContainers(ctx); err != nil || len(running) != 4 {
		t.Errorf("%d running containers, %v; want 4", len(running), err)
	}
}

func containerFiles(t *testing.T, s store.Store) {
	ctx := t.Context()
	for i := range 2 {
		if err := s.CreateContainer(ctx, container(i)); err != nil {
			t.Fatal(err)
		}
	}
	f := &berth.ContainerFile{ID: "cfile_1", Object: "container.file", ContainerID: "cntr_0", CreatedAt: 1, Bytes: 3,
		Path: "/mnt/data/a", Source: "assistant"}
	if err := s.PutContainerFile(ctx, mine, f); err != nil {
		t.Fatal(err)
	}
	again := &berth.ContainerFile{ID: "cfile_2", Object: "container.file", ContainerID: "cntr_0", CreatedAt: 9,
		Bytes: 5, Path: "/mnt/data/a", Source: "user"}
	if err := s.PutContainerFile(ctx, mine, again); err != nil {
		t.Fatal(err)
	}
	if again.ID != "cfile_1" || again.CreatedAt != 1 || again.Source != "user" {
		t.Errorf("a known path got %+v", again)
	}
	back := &berth.ContainerFile{ID: "cfile_3", Object: "container.file", ContainerID: "cntr_0", Bytes: 6,
		Path: "/mnt/data/a", Source: "assistant"}
	if err := s.PutContainerFile(ctx, mine, back); err != nil || back.Source != "user" {
		t.Errorf("the source changed from user: %+v, %v", back, err)
	}
	got, err := s.GetContainerFile(ctx, mine, "cntr_0", "cfile_1")
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the file", got, back)
	if all, err := s.ContainerFiles(ctx, mine, "cntr_0"); err != nil || len(all) != 1 {
		t.Errorf("%d files, %v", len(all), err)
	}
	wantErr(t, "another project's Put", s.PutContainerFile(ctx, theirs, f), store.ErrNotFound)
	_, err = s.GetContainerFile(ctx, theirs, "cntr_0", "cfile_1")
	wantErr(t, "another project's Get", err, store.ErrNotFound)
	_, err = s.GetContainerFile(ctx, mine, "cntr_1", "cfile_1")
	wantErr(t, "another container's Get", err, store.ErrNotFound)
	_, err = s.ContainerFiles(ctx, theirs, "cntr_0")
	wantErr(t, "another project's list", err, store.ErrNotFound)
	wantErr(t, "another project's Delete", s.DeleteContainerFile(ctx, theirs, "cntr_0", "cfile_1"), store.ErrNotFound)
	if err := s.DeleteContainer(ctx, mine, "cntr_0"); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateContainer(ctx, container(0)); err != nil {
		t.Fatal(err)
	}
	if all, err := s.ContainerFiles(ctx, mine, "cntr_0"); err != nil || len(all) != 0 {
		t.Errorf("a deleted container has files: %d, %v", len(all), err)
	}
}

func keys(t *testing.T, s store.Store) {
	ctx := t.Context()
	k := &berth.Key{ID: "key_1", Project: mine, Name: "n", Hash: [32]byte{1, 2}, CreatedAt: 5, ExpiresAt: 9,
		Tail: "wxyz", Owner: "user_1", Note: "of the nightly run", Role: berth.RoleRunner,
		Scope: berth.KeyScope{Tools: []string{"shell"}, Routes: []string{"GET /v1/models"}}}
	if err := s.CreateKey(ctx, k); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "the same secret again", s.CreateKey(ctx, &berth.Key{ID: "key_2", Hash: k.Hash}), store.ErrExists)
	got, err := s.KeyByHash(ctx, k.Hash)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the key", got, k)
	for c, want := range map[berth.Caller]error{{Project: mine, Key: "key_1"}: nil,
		{Project: theirs, Key: "key_1"}: store.ErrNotFound, {Project: mine, Key: "key_2"}: store.ErrNotFound,
		{Project: mine, Key: "key_1", Session: "sess_1"}: store.ErrNotFound} {
		got, err := s.KeyOf(ctx, c)
		wantErr(t, "the key of a caller", err, want)
		if err == nil {
			same(t, "the key of a caller", got, k)
		}
	}
	if err := s.UseKeys(ctx, map[berth.KeyID]int64{"key_1": 7, "key_none": 8}); err != nil {
		t.Fatal(err)
	}
	if err := s.UseKeys(ctx, map[berth.KeyID]int64{"key_1": 6}); err != nil { // another server was later
		t.Fatal(err)
	}
	k.LastUsedAt = 7
	_, err = s.KeyByHash(ctx, [32]byte{9})
	wantErr(t, "an unknown secret", err, store.ErrNotFound)
	if all, err := s.ListKeys(ctx); err != nil || len(all) != 1 {
		t.Errorf("%d keys, %v", len(all), err)
	}
	limit := berth.Amount(5)
	k.Limits.CostPerMonth = &limit
	k.Role, k.Note, k.Owner, k.Name, k.ExpiresAt = berth.RoleViewer, "another note", "user_2", "renamed", 99
	k.Scope = berth.KeyScope{Routes: []string{"GET *"}}
	changed, err := s.UpdateKey(ctx, "key_1", func(got *berth.Key) error {
		got.Role, got.Note, got.Owner, got.Name, got.ExpiresAt = k.Role, k.Note, k.Owner, k.Name, k.ExpiresAt
		got.Scope, got.Limits = k.Scope, k.Limits
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "a changed key", changed, k)
	refused := errors.New("refused")
	_, err = s.UpdateKey(ctx, "key_1", func(got *berth.Key) error {
		got.Role = berth.RoleRunner
		return refused
	})
	wantErr(t, "a refused change", err, refused)
	_, err = s.UpdateKey(ctx, "key_none", func(*berth.Key) error { return nil })
	wantErr(t, "a change of an unknown key", err, store.ErrNotFound)
	if got, err = s.KeyByHash(ctx, k.Hash); err != nil {
		t.Fatal(err)
	}
	same(t, "a limited key", got, k)
	if all, err := s.ListKeys(ctx); err != nil || len(all) != 1 || *all[0].Limits.CostPerMonth != 5 {
		t.Errorf("limited keys: got %v, %v", all, err)
	}
	for id, want := range map[berth.KeyID]*berth.Amount{"key_1": &limit, "key_none": nil} {
		if got, err := s.KeyLimits(ctx, id); err != nil || (got.CostPerMonth == nil) != (want == nil) || want != nil &&
			*got.CostPerMonth != *want {
			t.Errorf("limits of %s: got %v, %v", id, got, err)
		}
	}
	if _, err := s.UpdateKey(ctx, "key_1", func(got *berth.Key) error {
		got.Limits = berth.KeyLimits{}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.KeyLimits(ctx, "key_1"); err != nil || got.CostPerMonth != nil {
		t.Errorf("removed limits: got %v, %v", got, err)
	}
	if err := s.DeleteKey(ctx, "key_1"); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "a second deletion", s.DeleteKey(ctx, "key_1"), store.ErrNotFound)
	_, err = s.KeyByHash(ctx, k.Hash)
	wantErr(t, "a deleted key", err, store.ErrNotFound)
}
