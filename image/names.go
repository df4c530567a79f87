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

// writeName creates or replaces a name.
func (l *Store) writeName(n name) error {
	next := l.namePath("." + n.name) // a name cannot start with a dot
	if err := os.WriteFile(next, []byte(n.digest+" "+n.recipe+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(next, l.namePath(n.name))
}
