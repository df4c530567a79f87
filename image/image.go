// Package image keeps templates: the root file systems that sandboxes start from.
//
// A Store is a directory:
//
//	templates/<sha256>/   template.json and rootfs/, which is never changed once it is there
//	names/<name>          the digest that a name stands for, and that of its recipe
//	blobs/<sha256>        what images were made of; a layer that several have is there once
//	cache/<suite>/        downloaded packages, for the next build
//	building-*/           what a build is making
//
// A template is built beside its place and moved there whole, so that an
// interrupted build leaves nothing that could be used.
package image

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/statefile"
)

// ErrNotFound: the library has no such template.
var ErrNotFound = errors.New("no such template")

// A Template is a root file system and what is known of it.
type Template struct {
	Name      string    `json:"-"`      // the name that stands for it; "" if none does
	Digest    string    `json:"digest"` // sha256:… of what is in it; digest says what that covers
	CreatedAt time.Time `json:"created_at"`
	Bytes     int64     `json:"bytes"`              // in its files
	Packages  []string  `json:"packages"`           // name=version
	Image     *Origin   `json:"image,omitempty"`    // what it was last made of, if that was an image
	Snapshot  *Change   `json:"snapshot,omitempty"` // or a snapshot
	Config    Config    `json:"config,omitzero"`    // what the image says of its programs
	Recipe    string    `json:"-"`                  // digest of the recipe that was last built under the name; "" if none was
	Rootfs    string    `json:"-"`                  // absolute path on the host; only to be read
}

// A Config is what an image says of the programs that run in it.
type Config struct {
	Env        []string `json:"env,omitempty"`         // KEY=value; what commands find unless their container says otherwise
	User       string   `json:"user,omitempty"`        // who commands are: see fit
	WorkingDir string   `json:"working_dir,omitempty"` // only told: commands begin in /mnt/data
}

// A Store keeps templates in a directory. Its methods may be called at the same
// time, by several processes as well.
type Store struct {
	dir string
	log *slog.Logger
}

// Open opens a library, which it makes, and removes what interrupted builds left.
func Open(dir string, log *slog.Logger) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	// Others on this machine must not reach the setuid programs of a template.
	for _, d := range []string{"templates", "names", "cache", "blobs"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	l := &Store{dir: dir, log: log}
	return l, l.sweep()
}

// sweep removes what interrupted builds left, unless a build is going on.
func (l *Store) sweep() error {
	lock, err := l.openLock(buildLock)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := flock(lock); errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	} else if err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(l.dir, "building-*"))
	if err != nil {
		return err
	}
	for _, dir := range left {
		l.log.Info("removing what an interrupted build left", "dir", dir)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

var (
	namePattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// Get returns the template that has a name or a digest, or ErrNotFound.
func (l *Store) Get(ref string) (Template, error) {
	names, err := l.names()
	if err != nil {
		return Template{}, err
	}
	if n, ok := names[ref]; ok {
		return l.load(n)
	}
	if !digestPattern.MatchString(ref) {
		return Template{}, fmt.Errorf("%w: %q", ErrNotFound, ref)
	}
	return l.load(namesOf(names, ref)[0])
}

// List returns all templates by name, first those without one. A template
// with several names is in the list once for each.
func (l *Store) List() ([]Template, error) {
	names, err := l.names()
	if err != nil {
		return nil, err
	}
	dirs, err := os.ReadDir(filepath.Join(l.dir, "templates"))
	if err != nil {
		return nil, err
	}
	var all []Template
	for _, d := range dirs {
		for _, n := range namesOf(names, "sha256:"+d.Name()) {
			t, err := l.load(n)
			if err != nil {
				l.log.Warn("a template cannot be read", "template", d.Name(), "err", err)
				continue
			}
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b Template) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Digest, b.Digest))
	})
	return all, nil
}

// Remove removes a name, and the template with its last name; or, by digest, a
// template with all its names. kept holds the digests that something refers to: such
// a template stays, without a name, until Prune, and by digest it is not removed but
// ErrInUse returned. So it is with templates that are held.
func (l *Store) Remove(ref string, kept map[string]bool) error {
	lock, err := l.lock(context.Background(), indexLock)
	if err != nil {
		return err
	}
	defer lock.Close()
	t, err := l.Get(ref)
	if err != nil {
		return err
	}
	names, err := l.names()
	if err != nil {
		return err
	}
	all := namesOf(names, t.Digest)
	doomed := all
	if ref != t.Digest {
		doomed = []name{names[ref]}
	} else if kept[t.Digest] {
		return fmt.Errorf("%w: %s", ErrInUse, t.Digest)
	}
	for _, n := range doomed {
		if n.name == "" {
			continue
		}
		if err := os.Remove(l.namePath(n.name)); err != nil {
			return err
		}
	}
	l.touch(t.Digest)
	if len(doomed) < len(all) || kept[t.Digest] {
		return nil
	}
	if err := l.discard(t.Digest); ref == t.Digest || !errors.Is(err, ErrInUse) {
		return err
	}
	return nil
}

// path returns where the template with a digest is.
func (l *Store) path(digest string) string {
	return filepath.Join(l.dir, "templates", strings.TrimPrefix(digest, "sha256:"))
}

func (l *Store) namePath(name string) string { return filepath.Join(l.dir, "names", name) }

// load reads what is known of a template.
func (l *Store) load(n name) (Template, error) {
	text, err := statefile.ReadFile(filepath.Join(l.path(n.digest), "template.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return Template{}, fmt.Errorf("%w: %s", ErrNotFound, n.digest)
	}
	if err != nil {
		return Template{}, err
	}
	t := Template{Name: n.name, Recipe: n.recipe, Rootfs: filepath.Join(l.path(n.digest), "rootfs")}
	return t, json.Unmarshal(text, &t)
}
