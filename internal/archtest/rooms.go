package archtest

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// maxBack is the share of a package's arrows between files that may run back, in percent.
	maxBack = 25
	// fewArrows is the number of arrows up to which a package is small enough for any order.
	fewArrows = 20
	// maxMethods is the maximum number of methods of a type.
	maxMethods = 40
)

// A room is a package of files that use each other.
type room struct {
	path    string
	arrows  int            // pairs of files of which the first uses the second
	back    int            // arrows against the best order of files
	methods map[string]int // by type
}

// share returns the share of arrows that run back, in percent, rounded up.
func (r room) share() int {
	if r.arrows == 0 {
		return 0
	}
	return (100*r.back + r.arrows - 1) / r.arrows
}

// rooms measures the packages of a repository.
func rooms(root string) ([]room, error) {
	var all []room
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if err := skipDir(rel); err != nil {
			return err
		}
		r, err := measure(p)
		if r.path = filepath.ToSlash(rel); err == nil && r.methods != nil {
			all = append(all, r)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("measure packages: %w", err)
	}
	return all, nil
}

// nothingImporter leaves all imports unknown: the uses of a package's own names can be found without them.
type nothingImporter struct{}

func (nothingImporter) Import(string) (*types.Package, error) { return nil, errors.New("not imported") }

// measure measures the package in a directory. It has no methods if there is none.
func measure(dir string) (r room, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return r, err
	}
	set := token.NewFileSet()
	var files []*ast.File
	name := ""
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, filepath.Join(dir, e.Name()), nil, parser.ParseComments)
		if err != nil {
			return r, fmt.Errorf("parse: %w", err)
		}
		if ast.IsGenerated(f) || name != "" && f.Name.Name != name {
			continue
		}
		name = f.Name.Name
		files = append(files, f)
	}
	if len(files) == 0 {
		return r, nil
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: nothingImporter{}, FakeImportC: true, Error: func(error) {}}
	_, _ = conf.Check(name, set, files, info) // its errors are those of the missing imports
	file := func(p token.Pos) string { return path.Base(filepath.ToSlash(set.Position(p).Filename)) }
	uses := map[string]map[string]bool{}
	for id, o := range info.Uses {
		if o.Pkg() == nil || o.Pkg().Name() != name || !o.Pos().IsValid() {
			continue
		}
		if _, isPackage := o.(*types.PkgName); isPackage || o.Parent() != nil && o.Parent() != o.Pkg().Scope() {
			continue // a local variable
		}
		from, to := file(id.Pos()), file(o.Pos())
		if from == to {
			continue
		}
		if uses[from] == nil {
			uses[from] = map[string]bool{}
		}
		uses[from][to] = true
	}
	r.methods = map[string]int{}
	for _, f := range files {
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil {
				r.methods[receiver(fn.Recv.List[0].Type)]++
			}
		}
	}
	r.arrows, r.back = countBack(uses)
	return r, nil
}

// countBack counts the arrows, and those that run against an order of files with few of them. It finds the order as
// Eades, Lin and Smyth do: files that use no other are lowest, files that no other uses are highest, and of the rest
// the one that uses most and is used least is the highest.
func countBack(uses map[string]map[string]bool) (arrows, back int) {
	rest := map[string]bool{}
	for from, targets := range uses {
		rest[from] = true
		for to := range targets {
			rest[to] = true
			arrows++
		}
	}
	degrees := func(f string) (out, in int) {
		for g := range rest {
			if uses[f][g] {
				out++
			}
			if uses[g][f] {
				in++
			}
		}
		return out, in
	}
	var high, low []string
	for len(rest) > 0 {
		best, most, lowest := "", 0, false
		for _, f := range slices.Sorted(maps.Keys(rest)) {
			out, in := degrees(f)
			if out == 0 {
				best, lowest = f, true
				break
			}
			if excess := out - in; best == "" || excess > most {
				best, most = f, excess
			}
		}
		delete(rest, best)
		if lowest {
			low = append(low, best)
		} else {
			high = append(high, best)
		}
	}
	slices.Reverse(low)
	level := map[string]int{}
	for i, f := range append(high, low...) {
		level[f] = i
	}
	for from, targets := range uses {
		for to := range targets {
			if level[to] < level[from] {
				back++
			}
		}
	}
	return arrows, back
}

// knots returns a message for each package and type that breaks a limit of rooms.
func knots(all []room) (broken []string) {
	check := func(what, unit string, got, limit int) {
		if got > limit {
			broken = append(broken, fmt.Sprintf("%s has %d %s, more than %d", what, got, unit, limit))
		}
	}
	for _, r := range all {
		share := r.share()
		if r.arrows <= fewArrows {
			share = 0
		}
		check(r.path, "% of its arrows between files run back", share, maxBack)
		for name, n := range r.methods {
			check(r.path+"."+name, "methods", n, maxMethods)
		}
	}
	slices.SortFunc(broken, cmp.Compare)
	return broken
}
