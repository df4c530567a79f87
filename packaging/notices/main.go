// Command notices writes the licences of everything that Go programs contain: of Go, of each module that the compiler
// has recorded in them, as the module cache has it, and of other files that are embedded.
//
//	go run ./packaging/notices -goroot "$(go env GOROOT)" -modcache "$(go env GOMODCACHE)" \
//		-files console/assets/vendor:internal/tokens bin/berth
package main

import (
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	root := flag.String("goroot", "", "directory of Go, as go env GOROOT prints it")
	cache := flag.String("modcache", "", "cache of modules, as go env GOMODCACHE prints it")
	files := flag.String("files", "", "directories with NAME.LICENSE of other files that are embedded, divided by colons")
	flag.Parse()
	if err := write(os.Stdout, *root, *cache, *files, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func write(w io.Writer, root, cache, files string, programs []string) error {
	dirs := map[string]string{"Go": root} // of components, by name
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			if m.Version != "" && m.Version != "(devel)" {
				dirs[m.Path+" "+m.Version] = filepath.Join(cache, escape(m.Path)+"@"+escape(m.Version))
			}
		}
	}
	var missing []error
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		texts, err := licences(dirs[name], legal)
		if err == nil && len(texts) == 0 {
			err = errors.New("it has no licence")
		}
		if err != nil {
			missing = append(missing, fmt.Errorf("%s: %w", name, err))
			continue
		}
		fmt.Fprintf(w, "==== %s ====\n\n%s\n", name, strings.Join(texts, "\n"))
	}
	for _, dir := range filepath.SplitList(files) {
		texts, err := licences(dir, embedded)
		missing = append(missing, err)
		for _, text := range texts {
			fmt.Fprintf(w, "==== embedded files ====\n\n%s\n", text)
		}
	}
	return errors.Join(missing...)
}

var (
	legal    = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`)
	capital  = regexp.MustCompile(`[A-Z]`)
	embedded = regexp.MustCompile(`\.LICENSE$`)
)

// licences returns the texts of the files in a directory whose names match.
func licences(dir string, names *regexp.Regexp) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, e := range entries {
		if e.IsDir() || !names.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		texts = append(texts, e.Name()+"\n\n"+string(text))
	}
	return texts, nil
}

// escape returns the name of a module or a version in the module cache, which has no capitals.
func escape(name string) string {
	return capital.ReplaceAllStringFunc(name, func(c string) string { return "!" + strings.ToLower(c) })
}
