package changes

import (
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	v1 "github.com/berth-run/berth/guest/guestpb/berth/guest/v1"
	"github.com/berth-run/berth/internal/clock"
)

// walk returns the files that a scan of everything finds.
func walk(t *testing.T, root string) map[string]fileMark {
	t.Helper()
	files := map[string]fileMark{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		files[strings.TrimPrefix(path, root+"/")] = fileMark{st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// difference returns the changes between two scans of everything.
func difference(before, after map[string]fileMark) map[string]string {
	all := map[string]string{}
	for path, is := range after {
		if was, ok := before[path]; !ok {
			all[path] = fmt.Sprint(v1.Change_CREATED, is.size)
		} else if was != is {
			all[path] = fmt.Sprint(v1.Change_UPDATED, is.size)
		}
	}
	for path, was := range before {
		if _, ok := after[path]; !ok {
			all[path] = fmt.Sprint(v1.Change_DELETED, was.size)
		}
	}
	return all
}

func told(c *v1.Changes) map[string]string {
	all := map[string]string{}
	for _, f := range c.GetFiles() {
		all[f.Path] = fmt.Sprint(f.Kind, int64(f.Bytes))
	}
	return all
}

// during makes changes as a call does, and checks the reported ones.
func during(t *testing.T, tr *Tree, what string, do func()) {
	t.Helper()
	duringLinks(t, tr, what, func() bool { do(); return false })
}

// duringLinks is during for calls that make hard links; do reports whether any was made
// so far. A link that is removed before the next scan changes the file's ctime without an
// event: updates are not compared until the tree has seen a file with several names.
func duringLinks(t *testing.T, tr *Tree, what string, do func() bool) {
	t.Helper()
	scene, before := tr.Begin(), walk(t, tr.root)
	made := do()
	after := walk(t, tr.root)
	changes := tr.End(scene)
	tr.acquire(nil) // a scan may still run in the background
	brief := made && tr.notify && !tr.linked
	tr.release()
	if changes == nil {
		t.Fatalf("%s: the changes are unknown", what)
	}
	want := difference(before, after)
	if changes.More > 0 {
		if got := len(changes.Files) + int(changes.More); got != len(want) || len(changes.Files) != maxChanges {
			t.Fatalf("%s: got %d changes, want %d", what, got, len(want))
		}
		return
	}
	got := told(changes)
	if brief {
		maps.DeleteFunc(want, isUpdate)
		maps.DeleteFunc(got, isUpdate)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func isUpdate(_, change string) bool { return strings.HasPrefix(change, "UPDATED") }

// epoch is when the clocks of the tests begin.
var epoch = time.Unix(1_800_000_000, 0)

// newTree returns a tree with a clock that does not advance, and without a bound on the entries.
func newTree(t *testing.T, notify bool) *Tree {
	tr := New(t.TempDir(), notify)
	tr.limits.before, tr.limits.after = math.MaxInt, math.MaxInt
	tr.clock = clock.NewManual(epoch)
	return tr
}

// modes are the ways to find changes.
func modes(t *testing.T, f func(t *testing.T, tr *Tree)) {
	for name, notify := range map[string]bool{"Notified": true, "Walk": false} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t, notify)
			t.Cleanup(func() {
				tr.acquire(nil)
				tr.reset()
				tr.release()
			})
			f(t, tr)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// After any changes, by a call or between calls, a scan of the changed files finds the
// same as a scan of everything.
func TestChangesAtRandom(t *testing.T) {
	modes(t, func(t *testing.T, tr *Tree) {
		out := t.TempDir()
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		path := func() string {
			p := tr.root
			if r.IntN(12) == 0 {
				p = out
			}
			for range 1 + r.IntN(3) {
				p += "/" + string("abcd"[r.IntN(4)])
			}
			return p
		}
		linked := false
		step := func() {
			p, q := path(), path()
			switch r.IntN(12) { // many of the steps fail
			case 0, 1:
				_ = os.WriteFile(p, make([]byte, r.IntN(9)), 0o644)
			case 2:
				if f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0); err == nil {
					_, _ = f.Write(make([]byte, r.IntN(3)))
					f.Close()
				}
			case 3, 4, 5:
				_ = os.MkdirAll(p, 0o755)
			case 6, 7:
				_ = os.Rename(p, q)
			case 8:
				_ = os.RemoveAll(p)
			case 9:
				_ = os.Truncate(p, int64(r.IntN(9)))
			case 10:
				if strings.HasPrefix(p, tr.root) && strings.HasPrefix(q, tr.root) {
					linked = os.Link(p, q) == nil || linked
				}
			case 11:
				_ = os.Symlink(q, p)
			}
		}
		for round := range 150 {
			for range r.IntN(3) * 4 {
				step()
			}
			duringLinks(t, tr, fmt.Sprintf("seed %d, round %d", seed, round), func() bool {
				for range r.IntN(15) {
					step()
				}
				return linked
			})
		}
		tr.acquire(nil)
		defer tr.release()
		if len(tr.gone) > 0 || tr.held < 0 {
			t.Errorf("%d removed folders are cached, and %d bytes", len(tr.gone), tr.held)
		}
	})
}

func TestChangesOfCallsAtOnce(t *testing.T) {
	modes(t, func(t *testing.T, tr *Tree) {
		write := func(name string) { must(t, os.WriteFile(filepath.Join(tr.root, name), []byte(name), 0o644)) }
		write("old")
		first := tr.Begin()
		write("a")
		second := tr.Begin()
		must(t, os.Remove(filepath.Join(tr.root, "old")))
		write("b")
		if diff := cmp.Diff(map[string]string{"a": "CREATED 1", "b": "CREATED 1", "old": "DELETED 3"},
			told(tr.End(first))); diff != "" {
			t.Errorf("the first (-want +got):\n%s", diff)
		}
		write("a")
		must(t, os.Remove(filepath.Join(tr.root, "b")))
		if diff := cmp.Diff(map[string]string{"a": "UPDATED 1", "old": "DELETED 3"}, told(tr.End(second))); diff != "" {
			t.Errorf("the second (-want +got):\n%s", diff)
		}
	})
}

// More events than are accepted: the folder is read, and an overflow does no harm.
func TestChangesOfManyFiles(t *testing.T) {
	modes(t, func(t *testing.T, tr *Tree) {
		write := func(text string) {
			for i := range 3 * maxEvents {
				must(t, os.WriteFile(fmt.Sprintf("%s/%d", tr.root, i), []byte(text), 0o644))
			}
		}
		during(t, tr, "created", func() { write("") })
		during(t, tr, "updated", func() { write("x") })
		during(t, tr, "one", func() { must(t, os.Remove(tr.root+"/7")) })
		during(t, tr, "queue overflows", func() {
			tr.acquire(nil) // so that no event is read
			defer tr.release()
			for i := range 40_000 {
				must(t, os.Chmod(fmt.Sprintf("%s/%d", tr.root, i%6), 0o600))
			}
		})
		during(t, tr, "one after that", func() { must(t, os.Remove(tr.root+"/8")) })
	})
}

func TestChangesOfNames(t *testing.T) {
	modes(t, func(t *testing.T, tr *Tree) {
		must(t, os.Symlink(".", tr.root+"/loop"))
		must(t, os.Symlink("/etc", tr.root+"/etc"))
		during(t, tr, "links", func() { must(t, os.Symlink("..", tr.root+"/up")) })
		scene := tr.Begin()
		must(t, os.WriteFile(tr.root+"/a\nb\x1b", nil, 0o644))
		must(t, os.WriteFile(tr.root+"/c\xff", nil, 0o644))
		must(t, os.Mkdir(tr.root+"/\xfe", 0o755))
		must(t, os.WriteFile(tr.root+"/\xfe/d", nil, 0o644))
		want := map[string]string{"a\nb\x1b": "CREATED 0", "c\uFFFD": "CREATED 0", "\uFFFD/d": "CREATED 0"}
		if diff := cmp.Diff(want, told(tr.End(scene))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// Directories whose paths are too long are not scanned.
func TestChangesOfDeepDirectories(t *testing.T) {
	modes(t, func(t *testing.T, tr *Tree) {
		name := strings.Repeat("d", 100)
		scene := tr.Begin()
		fd, err := unix.Open(tr.root, unix.O_DIRECTORY, 0)
		must(t, err)
		for range 300 {
			must(t, unix.Mkdirat(fd, name, 0o755))
			sub, err := unix.Openat(fd, name, unix.O_DIRECTORY, 0)
			must(t, err)
			unix.Close(fd)
			fd = sub
		}
		unix.Close(fd)
		must(t, os.WriteFile(tr.root+"/top", nil, 0o644))
		if diff := cmp.Diff(map[string]string{"top": "CREATED 0"}, told(tr.End(scene))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		second := tr.Begin()
		must(t, os.Rename(filepath.Join(tr.root, name, name), tr.root+"/moved"))
		must(t, os.WriteFile(tr.root+"/moved/f", nil, 0o644))
		if diff := cmp.Diff(map[string]string{"moved/f": "CREATED 0"}, told(tr.End(second))); diff != "" {
			t.Errorf("then (-want +got):\n%s", diff)
		}
	})
}

// A storm of renames, beside which looks end, see nothing of the files
// elsewhere, and after which they are right again.
func TestChangesInStorm(t *testing.T) {
	modes(t, func(t *testing.T, tr *Tree) {
		out := t.TempDir()
		must(t, os.WriteFile(out+"/secret", nil, 0o644))
		for i := range 20 {
			must(t, os.MkdirAll(fmt.Sprintf("%s/%d/sub", tr.root, i), 0o755))
			must(t, os.WriteFile(fmt.Sprintf("%s/%d/sub/f", tr.root, i), nil, 0o644))
		}
		stop := make(chan struct{})
		var storm sync.WaitGroup
		for n := range 4 {
			storm.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					d := fmt.Sprintf("%s/%d", tr.root, (i*4+n)%20)
					tmp := fmt.Sprintf("%s/tmp%d", tr.root, n)
					_ = os.Rename(d, tmp)
					_ = os.Symlink(out, d)
					_ = os.Remove(d)
					_ = os.Rename(tmp, d)
					_ = os.WriteFile(d+"/sub/f", []byte{byte(i)}, 0o644)
				}
			})
		}
		for range 50 {
			changes := tr.End(tr.Begin())
			for _, f := range changes.GetFiles() {
				if strings.Contains(f.Path, "secret") {
					t.Fatalf("%s is reported", f.Path)
				}
			}
		}
		close(stop)
		storm.Wait()
		during(t, tr, "after the storm", func() { must(t, os.WriteFile(tr.root+"/after", nil, 0o644)) })
	})
}

// The directory may be replaced, and file systems mounted below it are left out.
func TestChangesOfTheDirectoryItself(t *testing.T) {
	modes(t, func(t *testing.T, tr *Tree) {
		must(t, os.WriteFile(tr.root+"/a", nil, 0o644))
		during(t, tr, "replaced", func() {
			must(t, os.Rename(tr.root, tr.root+".old"))
			must(t, os.MkdirAll(tr.root+"/d", 0o755))
			must(t, os.WriteFile(tr.root+"/d/b", nil, 0o644))
		})
		during(t, tr, "the new one", func() { must(t, os.Remove(tr.root+"/d/b")) })
		scene := tr.Begin()
		must(t, os.WriteFile(tr.root+"/c", nil, 0o644))
		must(t, os.RemoveAll(tr.root))
		if c := tr.End(scene); c == nil || len(c.Files) > 0 {
			t.Errorf("removed: got %v", c)
		}
		must(t, os.Mkdir(tr.root, 0o755))
		during(t, tr, "there again", func() { must(t, os.WriteFile(tr.root+"/e", nil, 0o644)) })
	})
}

func TestChangesOfMounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: only root can mount")
	}
	modes(t, func(t *testing.T, tr *Tree) {
		out := t.TempDir()
		must(t, os.MkdirAll(out+"/sub", 0o755))
		must(t, os.MkdirAll(tr.root+"/m/hidden", 0o755))
		must(t, os.WriteFile(tr.root+"/m/hidden/f", nil, 0o644))
		t.Cleanup(func() { _ = unix.Unmount(tr.root+"/m", unix.MNT_DETACH) })
		during(t, tr, "mount", func() {
			if err := unix.Mount(out, tr.root+"/m", "", unix.MS_BIND, ""); err != nil {
				t.Skip("skipped: bind mounts:", err)
			}
		})
		during(t, tr, "in it", func() { must(t, os.WriteFile(tr.root+"/m/sub/a", nil, 0o644)) })
		during(t, tr, "from outside", func() { must(t, os.WriteFile(out+"/sub/b", nil, 0o644)) })
		during(t, tr, "unmount", func() { must(t, unix.Unmount(tr.root+"/m", 0)) })
	})
}

// A scan that reads too many entries is finished later, for the next call, when no caller waits.
func TestChangesInLargeDirectory(t *testing.T) {
	tr := newTree(t, true)
	for i := range 3000 {
		must(t, os.WriteFile(fmt.Sprintf("%s/%d", tr.root, i), nil, 0o644))
	}
	tr.limits.before = 2999
	if c := tr.End(tr.Begin()); c != nil {
		t.Errorf("%d changes are reported", len(c.Files))
	}
	for done := false; !done; {
		tr.turn <- struct{}{} // not acquire, for which the background scan would stop
		done = len(tr.stale) == 0
		tr.release()
	}
	during(t, tr, "then", func() { must(t, os.WriteFile(tr.root+"/new", nil, 0o644)) })
}

// Whether the changes are known depends on the number of entries that a scan may read.
func TestChangesWithinBudget(t *testing.T) {
	const files, folders = 1000, 2 // entries are read in batches of 256
	changed := func(after int) *v1.Changes {
		tr := newTree(t, false)
		for d := range folders {
			must(t, os.Mkdir(fmt.Sprintf("%s/d%d", tr.root, d), 0o755))
		}
		tr.limits.before, tr.limits.after = 2*folders+2, after
		scene := tr.Begin()
		for i := range files {
			must(t, os.WriteFile(fmt.Sprintf("%s/d%d/%d", tr.root, i%folders, i), nil, 0o644))
		}
		return tr.End(scene)
	}
	if c := changed(files - 1); c != nil {
		t.Errorf("too few entries: %d changes are reported", len(c.Files)+int(c.More))
	}
	if c := changed(files + 2*folders + 2); c == nil || len(c.Files)+int(c.More) != files {
		t.Errorf("enough entries: got %v", c)
	}
}

// A scan of a file system that does not answer ends by the guard.
func TestChangesOfHungFileSystem(t *testing.T) {
	tr := newTree(t, false)
	late := make(chan time.Time, 1)
	stop := tr.budget(math.MaxInt, late)
	if stop() {
		t.Error("stopped before the guard")
	}
	late <- epoch
	for range 2 { // also when the guard has been read
		if !stop() {
			t.Error("the guard does not end the scan")
		}
	}
	tr.acquire(nil) // another scan hangs
	lost := make(chan bool)
	go func() { lost <- tr.Begin().lost }()
	manual := tr.clock.(*clock.Manual)
	must(t, manual.Await(t.Context(), beforeGuard))
	manual.Advance(beforeGuard)
	if !<-lost {
		t.Error("a call waits for a scan that hangs")
	}
	tr.release()
}

// For a directory with too many files for the memory no changes are reported, until there
// are fewer.
func TestChangesOfTooManyFiles(t *testing.T) {
	modes(t, func(t *testing.T, tr *Tree) {
		if !tr.notify {
			t.Skip("the other mode has tested it")
		}
		tr.limits.held = 2 << 20
		scene := tr.Begin()
		for i := range tr.limits.held/fileCost + 1 {
			if i%1000 == 0 {
				must(t, os.Mkdir(fmt.Sprintf("%s/%d", tr.root, i/1000), 0o755))
			}
			must(t, unix.Mknod(fmt.Sprintf("%s/%d/%d", tr.root, i/1000, i), unix.S_IFREG|0o644, 0))
		}
		if c := tr.End(scene); c != nil {
			t.Errorf("%d changes are reported", len(c.Files)+int(c.More))
		}
		for i := range 200 {
			must(t, os.RemoveAll(fmt.Sprintf("%s/%d", tr.root, i)))
		}
		if c := tr.End(tr.Begin()); c != nil {
			t.Error("it did not rest")
		}
		tr.acquire(nil) // a scan may still run in the background
		if tr.held > 0 || tr.events != nil {
			t.Errorf("%d bytes are held", tr.held)
		}
		tr.release()
		tr.clock.(*clock.Manual).Advance(restTime)
		during(t, tr, "fewer", func() { must(t, os.WriteFile(tr.root+"/a", nil, 0o644)) })
	})
}
