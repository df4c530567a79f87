package beneath

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// at calls f with the directory that contains a path, opened with O_PATH, and the path's last
// part, which is "." for the Root itself. If follow is true and f returns ELOOP, at follows the
// link in the last part.
func (r *Root) at(op, name string, follow bool, f func(dir int, base string) error) error {
	if !filepath.IsLocal(name) {
		return &fs.PathError{Op: op, Path: name, Err: ErrEscape}
	}
	s := &steps{root: int(r.dir.Fd()), rest: strings.Split(path.Clean(name), "/")}
	s.dir = s.root
	defer s.close()
	if err := s.walk(follow, f); err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// steps is the state of walking a path.
type steps struct {
	root  int
	dir   int      // the directory reached so far
	done  []string // the parts that led to it, without links
	rest  []string // the remaining parts, at least one
	links int
	taken int
}

func (s *steps) walk(follow bool, f func(dir int, base string) error) error {
	for {
		elem := s.rest[0]
		s.rest = s.rest[1:]
		if s.taken++; s.taken > maxSteps {
			return unix.ENAMETOOLONG
		}
		if elem == ".." {
			if err := s.up(); err != nil {
				return err
			}
			continue
		}
		if len(s.rest) > 0 {
			next, err := part(s.dir, elem)
			if err == nil {
				s.enter(next, elem)
				continue
			}
			if !errors.Is(err, unix.ELOOP) {
				return err
			}
		} else if err := f(s.dir, elem); !follow || !errors.Is(err, unix.ELOOP) {
			return err
		}
		if err := s.follow(elem); err != nil {
			return err
		}
	}
}

// up goes to the parent directory by its name: the reached directory may have been moved out of
// the Root during the call.
func (s *steps) up() error {
	n := 1
	for len(s.rest) > 0 && s.rest[0] == ".." {
		n, s.rest = n+1, s.rest[1:]
	}
	if n > len(s.done) {
		return ErrEscape
	}
	s.rest = append(append([]string{}, s.done[:len(s.done)-n]...), s.rest...)
	if len(s.rest) == 0 {
		s.rest = []string{"."}
	}
	s.close()
	s.dir, s.done = s.root, nil
	return nil
}

func (s *steps) enter(dir int, elem string) {
	s.close()
	s.dir = dir
	if elem != "." {
		s.done = append(s.done, elem)
	}
}

// follow replaces a link by its target.
func (s *steps) follow(elem string) error {
	if s.links++; s.links > maxLinks {
		return unix.ELOOP
	}
	target, err := readlink(s.dir, elem)
	if err != nil {
		return err
	}
	if target == "" || path.IsAbs(target) {
		return ErrEscape
	}
	// "x/.." is not simply ".", as x may be a link.
	var parts []string
	for elem := range strings.SplitSeq(target, "/") {
		if elem != "" && elem != "." {
			parts = append(parts, elem)
		}
	}
	if len(parts) == 0 {
		parts = []string{"."}
	}
	s.rest = append(parts, s.rest...)
	return nil
}

func (s *steps) close() {
	if s.dir != s.root {
		unix.Close(s.dir)
	}
}
