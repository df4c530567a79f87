package container

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berth-run/berth"
)

// stored checks that the store has exactly these files, as path and source, when no work is left, and returns their
// ids. It does not cause a scan.
func (h *harness) stored(id berth.ContainerID, want ...string) map[string]berth.CFileID {
	h.t.Helper()
	h.settle()
	files, err := h.store.ContainerFiles(h.t.Context(), mine, id)
	if err != nil {
		h.t.Fatal(err)
	}
	ids := map[string]berth.CFileID{}
	var got []string
	for _, f := range files {
		got = append(got, f.Path+" "+f.Source)
		ids[f.Path] = f.ID
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		h.t.Fatalf("the store has %q, want %q", got, want)
	}
	return ids
}

// After a call, the changes that the guest reports are saved without a scan. A list also
// returns files that were made between calls.
func TestFilesOfCallsAreFollowed(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	h.sh(id, "echo 1 >first")
	ids := h.stored(id, "/mnt/data/first assistant") // by a scan, because the store had no rows

	// A file made outside calls is listed, but not collected by later calls.
	background := filepath.Join(h.work(id), "background")
	if err := os.WriteFile(background, []byte("b"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.sh(id, "mkdir -p d/e; echo 22 >d/e/second; echo more >>first; ln -s first link; : >.berth-temp; : >$(printf 'bad\\377')")
	then := h.stored(id, "/mnt/data/d/e/second assistant", "/mnt/data/first assistant")
	if then["/mnt/data/first"] != ids["/mnt/data/first"] {
		t.Error("the id of a file changed when it was written")
	}
	list := h.listed(id)
	slices.Sort(list)
	if want := []string{"/mnt/data/background 1 assistant", "/mnt/data/d/e/second 3 assistant",
		"/mnt/data/first 7 assistant"}; !slices.Equal(list, want) {
		t.Errorf("listed: got %q, want %q", list, want)
	}
	after := h.stored(id, "/mnt/data/background assistant", "/mnt/data/d/e/second assistant",
		"/mnt/data/first assistant")
	if after["/mnt/data/d/e/second"] != then["/mnt/data/d/e/second"] {
		t.Error("the id of a file changed when it was listed")
	}

	// A file that a call removes loses its row, and a new file at its path gets another id.
	h.put(id, "given", "by the user")
	h.sh(id, "rm given background; mv d/e/second d/third")
	h.stored(id, "/mnt/data/d/third assistant", "/mnt/data/first assistant")
	h.sh(id, "echo mine >given")
	h.stored(id, "/mnt/data/d/third assistant", "/mnt/data/first assistant", "/mnt/data/given assistant")
	h.put(id, "given", "again")
	h.sh(id, "echo more >>given; echo new >new")
	h.stored(id, "/mnt/data/d/third assistant", "/mnt/data/first assistant", "/mnt/data/given user",
		"/mnt/data/new assistant")
}

// A deletion that is reported late does not remove the row of a file that exists again.
func TestFollowingSparesFilesThatAreThere(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	h.sh(id, "echo 1 >a")
	h.stored(id, "/mnt/data/a assistant")
	s, err := h.k.leases.find(t.Context(), mine, id)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := h.k.files.gone(t.Context(), s, map[string]bool{"/mnt/data/a": true})
	if err != nil || len(gone) > 0 {
		t.Errorf("got %v, %v", gone, err)
	}
}

// Calls of a container together create no more rows than a list may have.
func TestFollowingIsBounded(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Bounds.Files = 5 })
	id := h.ready()
	h.sh(id, "mkdir d; touch d/1 d/2 d/3")
	h.stored(id, "/mnt/data/d/1 assistant", "/mnt/data/d/2 assistant", "/mnt/data/d/3 assistant")
	for range 5 {
		h.sh(id, "for i in 1 2 3 4; do mktemp -p . >/dev/null; done")
	}
	h.settle()
	files, err := h.store.ContainerFiles(t.Context(), mine, id)
	if err != nil || len(files) != h.opts.Bounds.Files {
		t.Fatalf("got %d rows, %v, want %d", len(files), err, h.opts.Bounds.Files)
	}
}

// A container with many entries is scanned for a list only, however fast that is.
func TestCrowdedIsNotCollected(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Bounds.Scan = 3 })
	id := h.ready()
	h.sh(id, "mkdir d; touch d/1 d/2")
	h.stored(id, "/mnt/data/d/1 assistant", "/mnt/data/d/2 assistant")
	s := h.k.index.lookup(mine, id)
	if s.files.crowded.Load() {
		t.Error("a container with 3 entries is crowded, want more than 3")
	}
	h.sh(id, "touch d/3")
	h.listed(id)
	if !s.files.crowded.Load() {
		t.Error("a container with 4 entries is not crowded")
	}
	h.settle()            // the last call has added its row
	s.files.rows.Store(0) // what the next call changes is not known
	h.sh(id, "touch d/4")
	h.stored(id, "/mnt/data/d/1 assistant", "/mnt/data/d/2 assistant", "/mnt/data/d/3 assistant")
	h.listed(id)
	h.stored(id, "/mnt/data/d/1 assistant", "/mnt/data/d/2 assistant", "/mnt/data/d/3 assistant",
		"/mnt/data/d/4 assistant")
}
