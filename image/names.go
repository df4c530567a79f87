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

// A name stands for a template.
type name struct {
	name   string // "" if a template has none
	digest string // of the template
	recipe string // digest
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
			continue // one that is being written
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
			return nil, fmt.Errorf("the library's name %s holds %q", f.Name(), text)
		}
		names[f.Name()] = name{f.Name(), digest, recipe}
	}
	return names, nil
}

// namesOf returns the names that stand for a digest, in order; if there is none,
// one that is empty.
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

// give makes a name stand for a template.
func (l *Store) give(n name) error {
	next := l.namePath("." + n.name) // no name has this form
	if err := os.WriteFile(next, []byte(n.digest+" "+n.recipe+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(next, l.namePath(n.name))
}
