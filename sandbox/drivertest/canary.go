package drivertest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
)

// A Volume is an ext4 file system in a file, so that its raw bytes can be read.
type Volume struct {
	Dir   string // mount point
	Image string
}

// NewVolume creates and mounts a volume for the duration of the test. With encryption its
// directories can be encrypted. It skips the test if the machine does not support this.
func NewVolume(tb testing.TB, encryption bool) Volume {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("skipped: only root can mount a volume")
	}
	dir := StateDir(tb)
	v := Volume{Dir: filepath.Join(dir, "volume"), Image: filepath.Join(dir, "image")}
	features := "^encrypt"
	if encryption {
		features = "encrypt"
	}
	// With nodiscard, freed blocks of the volume retain their content, as on most machines.
	if err := errors.Join(os.Mkdir(v.Dir, 0o700), os.WriteFile(v.Image, nil, 0o600),
		os.Truncate(v.Image, 2<<30)); err != nil {
		tb.Fatal(err)
	}
	for _, args := range [][]string{
		{"mkfs.ext4", "-q", "-E", "nodiscard", "-O", features, v.Image},
		{"mount", "-o", "loop,nodiscard", v.Image, v.Dir},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			tb.Skipf("skipped: %s: %v\n%s", args[0], err, out)
		}
	}
	tb.Cleanup(func() {
		if out, err := exec.Command("umount", v.Dir).CombinedOutput(); err != nil {
			tb.Errorf("umount: %v\n%s", err, out)
		}
	})
	return v
}

// Holds reports whether the raw bytes of the volume, including those cached in memory, contain
// a word.
func (v Volume) Holds(tb testing.TB, word string) bool {
	tb.Helper()
	mounted, err := os.Open(v.Dir)
	if err != nil {
		tb.Fatal(err)
	}
	defer mounted.Close()
	if err := unix.Syncfs(int(mounted.Fd())); err != nil {
		tb.Fatal(err)
	}
	f, err := os.Open(v.Image)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	found, err := contains(f, []byte(word))
	if err != nil {
		tb.Fatal(err)
	}
	return found
}

// contains reports whether r contains a word.
func contains(r io.Reader, word []byte) (bool, error) {
	buf := make([]byte, 1<<20)
	kept := 0
	for {
		n, err := r.Read(buf[kept:])
		if bytes.Contains(buf[:kept+n], word) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		kept = copy(buf, buf[max(0, kept+n-len(word)+1):kept+n])
	}
}

// Canary writes a random word everywhere in a sandbox, whose driver has its state on the
// volume. It reports whether the volume contained the word while the sandbox was alive, and
// whether it does after its end.
func Canary(t *testing.T, d sandbox.Driver, v Volume, rootfs string) (during, after bool) {
	t.Helper()
	word := rand.Text() + "-canary-" + rand.Text()
	b := Start(t, d, sandbox.Spec{ID: "canary", Template: sandbox.Template{Path: rootfs},
		Env: []string{"CANARY=" + word}})
	b.ShTimeout(fmt.Sprintf(`
		word=%s; deep=/mnt/data/a/b/c/d/e/f/$word; mkdir -p $deep
		echo $word >$deep/$word
		yes $word | head -c 200000000 >/mnt/data/big
		yes $word | head -c 50000000 >/mnt/data/deleted; sync; rm /mnt/data/deleted
		for dir in /tmp /dev/shm /var/tmp $HOME; do echo $word >$dir/$word; done
		sudo sh -c "echo $word >/root/$word"
		ln -s $word /mnt/data/link
		export MORE=$word; python3 -c 'import os, mmap; m = mmap.mmap(os.open("/mnt/data/big", os.O_RDWR), 4096); m[:64] = m[64:128]'
		sync`, word), time.Minute)
	during = v.Holds(t, word)
	if err := d.Destroy(t.Context(), b.ID); err != nil {
		t.Fatalf("Destroy: %v", err)
	}
	return during, v.Holds(t, word)
}
