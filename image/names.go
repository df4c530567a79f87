package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-run/berth/internal/statefile"
)

// A name refers to a template.
type name struct {
	name   string // "" if the template has none
	digest string // of the template
	recipe string // digest of the recipe; "" if none
}

// names returns all names.
func (l *Store) names() (map[string]name, error) {
	files, err := os.ReadDir(filepath.Join(l.dir, "names"))
	if err != nil {
		return nil, err
	}
	names := make(map[string]name, len(files))
	for _, f := range files {
		if !namePattern.MatchString(f.Name()) {
			continue // being written
		}
		text, err := statefile.ReadFile(l.namePath(f.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed just now
		}
		if err != nil {
			return nil, err
		}
		digest, recipe, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		if !digestPattern.MatchString(digest) {
			return nil, fmt.Errorf("name %s: the file holds %q, not a digest", f.Name(), text)
		}
		names[f.Name()] = name{f.Name(), digest, recipe}
	}
	return names, nil
}

// namesOf returns the names of a template, sorted. If it has none, namesOf returns a single
// name that is empty.
func namesOf(names map[string]name, digest string) []name {
	var all []name
	for _, n := range names {
		if n.digest == digest {
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		return []name{{digest: digest}}
	}
	slices.SortFunc(all, func(a, b name) int { return strings.Compare(a.name, b.name) })
	return all
}

// NamedBytes returns the size of the templates in dir, a Store's directory, that have a name with a prefix. It
// opens nothing, so that another process may be the Store's. Without such a directory it returns 0.
func NamedBytes(dir, prefix string) (int64, error) {
	l := &Store{dir: dir}
	files, err := os.ReadDir(filepath.Join(dir, "names"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("list names of templates: %w", err)
	}
	sizes := map[string]int64{}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), prefix) {
			continue
		}
		text, err := statefile.ReadFile(l.namePath(f.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed just now
		}
		if err != nil {
			return 0, fmt.Errorf("read name %s: %w", f.Name(), err)
		}
		digest, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		t, err := l.load(name{digest: digest})
		if err != nil && !errors.Is(err, ErrNotFound) {
			return 0, fmt.Errorf("read template %s: %w", f.Name(), err)
		}
		sizes[digest] = t.Bytes
	}
	var sum int64
	for _, n := range sizes {
		sum += n
	}
	return sum, nil
}

// writeName creates or replaces a name.
func (l *Store) writeName(n name) error {
	next := l.namePath("." + n.name) // a name cannot start with a dot
	if err := os.WriteFile(next, []byte(n.digest+" "+n.recipe+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(next, l.namePath(n.name))
}
