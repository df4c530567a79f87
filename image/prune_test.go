package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Prune removes unnamed templates unless they are in use, held or recently used.
func TestPrune(t *testing.T) {
	l := open(t, t.TempDir())
	old := map[string]Template{}
	for _, what := range []string{"unused", "held", "kept", "named"} {
		old[what] = keep(t, l, what, what)
		if what != "named" {
			keep(t, l, what, "new")
		}
	}
	hold, err := l.Hold(old["held"].Digest)
	if err != nil {
		t.Fatal(err)
	}
	inUse := map[string]bool{old["kept"].Digest: true}
	prune := func(grace time.Duration, want ...string) {
		t.Helper()
		done, err := l.Prune(t.Context(), inUse, grace)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, done.Templates); diff != "" {
			t.Errorf("pruned (-want +got):\n%s", diff)
		}
	}
	prune(time.Hour)
	prune(0, old["unused"].Digest)
	if _, err := l.Hold(old["unused"].Digest); !errors.Is(err, ErrNotFound) {
		t.Errorf("Hold of a pruned template: %v, want ErrNotFound", err)
	}
	if err := l.Remove(old["held"].Digest, nil); !errors.Is(err, ErrInUse) {
		t.Errorf("Remove of a held template: %v, want ErrInUse", err)
	}
	if err := l.Remove(old["kept"].Digest, inUse); !errors.Is(err, ErrInUse) {
		t.Errorf("Remove of a template in use: %v, want ErrInUse", err)
	}
	hold.Close()
	prune(time.Hour)
	prune(0, old["held"].Digest)
	inUse = nil
	prune(0, old["kept"].Digest)
	prune(0)

	// Remove by name takes only the name from a template that is held.
	hold, err = l.Hold(old["named"].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Remove("named", nil); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Get(old["named"].Digest); err != nil || got.Name != "" {
		t.Errorf("held template without a name: got %+v, %v", got, err)
	}
	hold.Close()
	prune(0, old["named"].Digest)
}

// Prune removes a blob after the last template made from it.
func TestPruneBlobs(t *testing.T) {
	needRoot(t)
	l := open(t, t.TempDir())
	base := gzipped(archive(shell))
	for name, o := range map[string]*ociImage{"one": newOCI(base, archive("one=1")),
		"two": newOCI(base, archive("two=2"))} {
		if _, err := l.Add(t.Context(), name, o.image(), AddOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		remove string
		blobs  int
	}{{"", 7}, {"one", 4}, {"two", 0}} { // manifest, configuration and layer of each, and a shared layer
		if step.remove != "" {
			if err := l.Remove(step.remove, nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Prune(t.Context(), nil, time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Prune(t.Context(), nil, 0); err != nil {
			t.Fatal(err)
		}
		if got := entries(t, l, "blobs/*"); len(got) != step.blobs {
			t.Errorf("without %q there are %d blobs, want %d", step.remove, len(got), step.blobs)
		}
	}
}

// Prune waits for a running Add, whose blobs no template refers to yet.
func TestPruneWaits(t *testing.T) {
	needRoot(t)
	l := open(t, t.TempDir())
	o := newOCI(archive(shell))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var once sync.Once
	o.reader = func(r io.Reader) io.Reader {
		once.Do(func() {
			if _, err := open(t, l.dir).Prune(ctx, nil, 0); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Prune while an image is added: %v, want a timeout", err)
			}
		})
		return r
	}
	if _, err := l.Add(t.Context(), "app", o.image(), AddOptions{}); err != nil {
		t.Error(err)
	}
}

// A successful Hold guarantees that the template stays; a failed one returns ErrNotFound.
func TestHoldRace(t *testing.T) {
	l := open(t, t.TempDir())
	for i := range 50 {
		made := keep(t, l, "app", fmt.Sprint(i))
		if err := os.Remove(l.namePath("app")); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				hold, err := l.Hold(made.Digest)
				if errors.Is(err, ErrNotFound) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				defer hold.Close()
				for range 10 {
					if _, err := os.Stat(made.Rootfs + "/etc/motd"); err != nil {
						t.Errorf("a held template is gone: %v", err)
					}
				}
			})
		}
		wg.Go(func() {
			if _, err := open(t, l.dir).Prune(t.Context(), nil, 0); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
	}
}

// A template that another process holds stays until that process ends.
func TestHoldProcess(t *testing.T) {
	if path := os.Getenv("BERTH_TEST_HOLD"); path != "" {
		l := open(t, path)
		if _, err := l.Hold(os.Getenv("BERTH_TEST_DIGEST")); err != nil {
			t.Fatal(err)
		}
		fmt.Println("held")
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
		return
	}
	l := open(t, t.TempDir())
	made := keep(t, l, "app", "1")
	cmd := exec.Command(os.Args[0], "-test.run=^TestHoldProcess$")
	cmd.Env = append(os.Environ(), "BERTH_TEST_HOLD="+l.dir, "BERTH_TEST_DIGEST="+made.Digest)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("held"))
	if _, err := io.ReadFull(out, line); err != nil {
		t.Fatal(err)
	}
	if err := l.Remove(made.Digest, nil); !errors.Is(err, ErrInUse) {
		t.Errorf("Remove of a template held by another process: %v, want ErrInUse", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := l.Get(made.Digest); err != nil {
		t.Error(err)
	}
	if err := l.Remove(made.Digest, nil); err != nil {
		t.Errorf("Remove of a released template: %v", err)
	}
}
