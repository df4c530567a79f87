// Package image stores templates: the root file systems that sandboxes start from.
//
// A Store is a directory:
//
//	templates/<sha256>/   template.json and rootfs/, which never changes once it is there
//	names/<name>          a name's template digest and recipe digest
//	blobs/<sha256>        blobs of the images that templates were made from, each stored once
//	cache/<suite>/        downloaded packages, for the next build
//	building-*/           builds in progress
//
// A template is built in building-* and moved into place whole, so that an interrupted
// build leaves no incomplete template.
package image

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/statefile"
)

// ErrNotFound is returned for a template that is not in the store.
var ErrNotFound = errors.New("no such template")

// A Template is a root file system and its metadata.
type Template struct {
	Name      string    `json:"-"`      // "" if it has none
	Digest    string    `json:"digest"` // sha256:…; digest defines what it covers
	CreatedAt time.Time `json:"created_at"`
	Bytes     int64     `json:"bytes"`              // total size of its files
	Packages  []string  `json:"packages"`           // name=version
	Image     *Origin   `json:"image,omitempty"`    // image it was last made from; nil if none
	Snapshot  *Change   `json:"snapshot,omitempty"` // snapshot it was last made from; nil if none
	Config    Config    `json:"config,omitzero"`    // the image's settings for its programs
	Contents  *Contents `json:"contents,omitempty"` // nil for a template of an earlier version
	Recipe    string    `json:"-"`                  // digest of the recipe last built under Name; "" if none
	Rootfs    string    `json:"-"`                  // absolute path on the host; read-only
}

// A Config holds an image's settings for the programs that run in it.
type Config struct {
	Env        []string `json:"env,omitempty"`         // KEY=value; a container's own variables override it
	User       string   `json:"user,omitempty"`        // account of the commands: see fit
	WorkingDir string   `json:"working_dir,omitempty"` // informational: commands start in /mnt/data
}

// A Store is a directory of templates. It is safe for concurrent use, also by several
// processes.
type Store struct {
	dir string
	log *slog.Logger
}

// Open opens the store in dir, creating it if necessary, and removes the leftovers of
// interrupted builds.
func Open(dir string, log *slog.Logger) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	// Other users of this machine must not reach the setuid programs of a template.
	for _, d := range []string{"templates", "names", "cache", "blobs"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	l := &Store{dir: dir, log: log}
	return l, l.sweep()
}

// sweep removes the leftovers of interrupted builds. It does nothing while a build runs.
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
		l.log.Info("removing the leftovers of an interrupted build", "dir", dir)
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

// Get returns the template with a name or a digest. It returns ErrNotFound if there is none.
func (l *Store) Get(ref string) (Template, error) {
	names, err := l.names()
	if err != nil {
		return Template{}, err
	}
	if n, ok := names[ref]; ok {
		return l.load(n)
	}
	if !digestPattern.MatchString(ref) {
		return Template{}, missing(ref, names)
	}
	return l.load(namesOf(names, ref)[0])
}

// missing returns ErrNotFound with the names of the templates that exist. It is for the
// operator: clients may see only the templates of their project.
func missing(ref string, names map[string]name) error {
	if len(names) == 0 {
		return fmt.Errorf("%w: %q; run berth image build to create one", ErrNotFound, ref)
	}
	return fmt.Errorf("%w: %q; available templates: %s", ErrNotFound, ref, strings.Join(slices.Sorted(maps.Keys(names)),
		", "))
}

// List returns all templates by name, unnamed ones first. A template with several names
// appears once for each.
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
				l.log.Warn("failed to read template", "template", d.Name(), "err", err)
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

// Remove removes a name, or by digest a template with all its names. A template is deleted
// with its last name. inUse holds the digests that containers or snapshots refer to. Such a
// template, or one that is held, loses its name but stays until Prune; by digest Remove
// returns ErrInUse for it.
func (l *Store) Remove(ref string, inUse map[string]bool) error {
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
	remove := all
	if ref != t.Digest {
		remove = []name{names[ref]}
	} else if inUse[t.Digest] {
		return fmt.Errorf("%w: %s", ErrInUse, t.Digest)
	}
	for _, n := range remove {
		if n.name == "" {
			continue
		}
		if err := os.Remove(l.namePath(n.name)); err != nil {
			return err
		}
	}
	l.touch(t.Digest)
	if len(remove) < len(all) || inUse[t.Digest] {
		return nil
	}
	if err := l.discard(t.Digest); ref == t.Digest || !errors.Is(err, ErrInUse) {
		return err
	}
	return nil
}

// path returns the directory of the template with a digest.
func (l *Store) path(digest string) string {
	return filepath.Join(l.dir, "templates", strings.TrimPrefix(digest, "sha256:"))
}

func (l *Store) namePath(name string) string { return filepath.Join(l.dir, "names", name) }

// load reads a template's metadata.
func (l *Store) load(n name) (Template, error) {
	text, err := statefile.ReadFile(filepath.Join(l.path(n.digest), "template.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return Template{}, fmt.Errorf("%w: %s", ErrNotFound, n.digest)
	}
	if err != nil {
		return Template{}, err
	}
	t := Template{Name: n.name, Recipe: n.recipe, Rootfs: filepath.Join(l.path(n.digest), "rootfs")}
	if err := json.Unmarshal(text, &t); err != nil {
		return t, fmt.Errorf("decode template: %w", err)
	}
	return t, nil
}
