// Package image keeps templates: the root file systems that sandboxes start from.
//
// A Library is a directory. Templates are found by digest, which covers what is in
// them, and by name; they are built beside their place and moved there whole, so
// that an interrupted build leaves nothing that could be used.
package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotFound: the library has no such template.
var ErrNotFound = errors.New("no such template")

// A Template is a root file system and what is known of it.
type Template struct {
	Name      string    `json:"name"`
	Digest    string    `json:"digest"` // sha256:… of the manifest of its files; see digest.go
	CreatedAt time.Time `json:"created_at"`
	Bytes     int64     `json:"bytes"`    // of all files
	Packages  []string  `json:"packages"` // name=version
	Rootfs    string    `json:"-"`        // on the host; never written
}

// A Library keeps templates in a directory. Several processes may use it at once;
// builds wait for each other.
type Library struct {
	dir string
	log *slog.Logger
}

// Open opens a library, which it makes, and removes what interrupted builds left.
func Open(dir string, log *slog.Logger) (*Library, error) {
	for _, d := range []string{"templates", "names", "cache"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	l := &Library{dir: dir, log: log}
	unlock, err := l.lock(context.Background(), false)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return l, nil // a build is going on; what is half made may be its
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	left, err := filepath.Glob(filepath.Join(dir, "building-*"))
	if err != nil {
		return nil, err
	}
	for _, d := range left {
		log.Info("removing what an interrupted build left", "dir", d)
		if err := os.RemoveAll(d); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// lock takes the library for building. If it is taken, it waits if it may, and
// fails with EWOULDBLOCK if not.
func (l *Library) lock(ctx context.Context, wait bool) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(l.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !wait || !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

var (
	namePattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// Get returns the template with a name or digest.
func (l *Library) Get(ref string) (Template, error) {
	digest := ref
	if !digestPattern.MatchString(ref) {
		if !namePattern.MatchString(ref) {
			return Template{}, fmt.Errorf("%w: %q is neither a name nor a digest", ErrNotFound, ref)
		}
		text, err := os.ReadFile(filepath.Join(l.dir, "names", ref))
		if errors.Is(err, fs.ErrNotExist) {
			return Template{}, fmt.Errorf("%w: %s", ErrNotFound, ref)
		}
		if err != nil {
			return Template{}, err
		}
		if digest = strings.TrimSpace(string(text)); !digestPattern.MatchString(digest) {
			return Template{}, fmt.Errorf("the library's name %s holds %q", ref, digest)
		}
	}
	return l.load(l.path(digest))
}

func (l *Library) path(digest string) string {
	return filepath.Join(l.dir, "templates", strings.TrimPrefix(digest, "sha256:"))
}

func (l *Library) load(dir string) (Template, error) {
	text, err := os.ReadFile(filepath.Join(dir, "template.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return Template{}, fmt.Errorf("%w: %s", ErrNotFound, filepath.Base(dir))
	}
	if err != nil {
		return Template{}, err
	}
	t := Template{Rootfs: filepath.Join(dir, "rootfs")}
	return t, json.Unmarshal(text, &t)
}

// List returns all templates, by name.
func (l *Library) List() ([]Template, error) {
	dirs, err := os.ReadDir(filepath.Join(l.dir, "templates"))
	if err != nil {
		return nil, err
	}
	var all []Template
	for _, d := range dirs {
		t, err := l.load(filepath.Join(l.dir, "templates", d.Name()))
		if err != nil {
			l.log.Warn("a template cannot be read", "template", d.Name(), "err", err)
			continue
		}
		all = append(all, t)
	}
	return all, nil
}

// Remove removes a template by name or digest. Sandboxes that run on it must be
// gone.
func (l *Library) Remove(ref string) error {
	t, err := l.Get(ref)
	if err != nil {
		return err
	}
	names, err := os.ReadDir(filepath.Join(l.dir, "names"))
	if err != nil {
		return err
	}
	for _, n := range names {
		if named, err := l.Get(n.Name()); err == nil && named.Digest == t.Digest {
			if err := os.Remove(filepath.Join(l.dir, "names", n.Name())); err != nil {
				return err
			}
		}
	}
	doomed, err := os.MkdirTemp(l.dir, "building-removed-*")
	if err != nil {
		return err
	}
	if err := os.Rename(l.path(t.Digest), filepath.Join(doomed, "template")); err != nil {
		return err
	}
	return os.RemoveAll(doomed)
}
