// Command publish writes the documentation as plain files: a directory for the version, versions.json, which lists all
// versions that are there, and index.html, which leads to the newest.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/semver"

	"github.com/berth-run/berth/site"
)

// A release is a version that was published.
type release struct {
	Version string `json:"version"`
	Path    string `json:"path"` // of its directory
}

func main() {
	log.SetFlags(0)
	out := flag.String("out", "dist/site", "the directory of all versions")
	version := flag.String("version", "", "the version of the documentation")
	flag.Parse()
	if err := publish(*out, *version, "docs", "api/openapi.json"); err != nil {
		log.Fatalf("publish: %v", err)
	}
}

// publish writes the files of a version and adds it to the versions.
func publish(out, version, docs, openAPI string) error {
	if !semver.IsValid("v" + version) {
		return fmt.Errorf("the version %q is not one such as 1.2.3", version)
	}
	document, err := os.ReadFile(openAPI)
	if err != nil {
		return fmt.Errorf("read the OpenAPI document: %w", err)
	}
	s, err := site.New(site.Options{Docs: os.DirFS(docs), OpenAPI: document, Version: version, Published: true})
	if err != nil {
		return err
	}
	dir := filepath.Join(out, version)
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the former files: %w", err)
	}
	bytes := 0
	for _, name := range s.Paths() {
		text, err := s.Read(name)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, filepath.FromSlash(name)), text); err != nil {
			return err
		}
		bytes += len(text)
	}
	fmt.Printf("%s: %d files, %.1f MB\n", dir, len(s.Paths()), float64(bytes)/1e6)
	return list(out, version)
}

// list adds a version to versions.json, the newest first, and makes the first page lead to the newest release.
func list(out, version string) error {
	name := filepath.Join(out, "versions.json")
	var all []release
	old, err := os.ReadFile(name)
	switch {
	case err == nil:
		if err := json.Unmarshal(old, &all); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
	case !os.IsNotExist(err):
		return fmt.Errorf("read the versions: %w", err)
	}
	all = slices.DeleteFunc(all, func(r release) bool { return r.Version == version })
	all = append(all, release{version, version + "/"})
	slices.SortFunc(all, func(a, b release) int {
		return cmp.Or(semver.Compare("v"+b.Version, "v"+a.Version), cmp.Compare(a.Version, b.Version))
	})
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("write the versions: %w", err)
	}
	if err := write(name, append(text, '\n')); err != nil {
		return err
	}
	newest := all[0]
	for _, r := range all { // a pre-release is the newest only if there is nothing else
		if semver.Prerelease("v"+r.Version) == "" {
			newest = r
			break
		}
	}
	return write(filepath.Join(out, "index.html"), fmt.Appendf(nil, first, newest.Path+"index.html"))
}

const first = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Berth documentation</title>
<meta http-equiv="refresh" content="0;url=%[1]s">
<p><a href="%[1]s">Berth documentation</a></p>
</html>
`

// write writes a file, with its directories.
func write(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	if err := os.WriteFile(name, text, 0o644); err != nil {
		return fmt.Errorf("write a file: %w", err)
	}
	return nil
}
