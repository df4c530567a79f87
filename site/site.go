// Package site makes web pages of the documentation: each page of docs, the reference of the API, a search, and the
// same texts as Markdown. A server shows them, and a release publishes them as files.
//
// All links are relative, so that the files work below any path and without a server. Nothing is loaded from elsewhere,
// and the pages can be read without the script.
//
// docs/README.md is the navigation (navigation.go). A page is rendered when it is requested first and stays in memory,
// compressed (file.go).
package site

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/site/manual"
)

// repository is where the files are to which a page links and which the site lacks.
const repository = "https://github.com/berth-run/berth/"

// apiDir is the directory of the reference of the API.
const apiDir = "api/"

// Options are what a site is made of.
type Options struct {
	Docs    fs.FS  // the pages, with their pictures
	OpenAPI []byte // the document of the reference
	Version string

	// Published says that the site is a directory beside those of other versions, which versions.json lists.
	Published bool
}

// A Site is the files of the documentation. It is safe for concurrent use.
type Site struct {
	options Options
	sources []string // the pages of Docs, by name
	nav     *navigation
	manual  *manual.Manual
	files   map[string]*file // by path
}

// New returns the site. It reads the navigation and the OpenAPI document, and renders no page.
func New(o Options) (*Site, error) {
	s := &Site{options: o, files: map[string]*file{}}
	err := fs.WalkDir(o.Docs, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path.Ext(name) == ".md" {
			s.sources = append(s.sources, name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the pages: %w", err)
	}
	if s.manual, err = manual.New(o.OpenAPI, berth.DocsURL); err != nil {
		return nil, err
	}
	if s.nav, err = s.readNavigation(); err != nil {
		return nil, err
	}
	return s, s.list()
}

// list fills in the files.
func (s *Site) list() error {
	for _, name := range s.sources {
		s.files[pagePath(name)] = newFile(func() ([]byte, error) { return s.showPage(name) })
		s.files[name] = newFile(func() ([]byte, error) { return s.source(name) })
	}
	attachments, err := s.attachments()
	if err != nil {
		return err
	}
	for _, name := range attachments {
		s.files[name] = newFile(func() ([]byte, error) { return fs.ReadFile(s.options.Docs, name) })
	}
	for _, p := range append(s.manual.Sections(), s.manual.Schemas()...) {
		s.files[apiDir+p.Path] = newFile(func() ([]byte, error) { return s.showReference(p) })
	}
	s.files["openapi.json"] = newFile(func() ([]byte, error) { return s.options.OpenAPI, nil })
	s.files["llms.txt"] = newFile(func() ([]byte, error) { return s.llms(), nil })
	s.files["assets/index.js"] = newFile(s.searchIndex)
	for name, text := range assetFiles() {
		s.files[name] = newFile(text)
	}
	return nil
}

// copied are the extensions of files beside the pages that the site has as they are.
var copied = []string{".svg", ".png", ".yaml", ".json"}

// attachments returns the names of the files to copy.
func (s *Site) attachments() ([]string, error) {
	var all []string
	err := fs.WalkDir(s.options.Docs, ".", func(name string, _ fs.DirEntry, err error) error {
		if slices.Contains(copied, path.Ext(name)) {
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the files beside the pages: %w", err)
	}
	return all, nil
}

// Paths returns the paths of all files, sorted.
func (s *Site) Paths() []string { return slices.Sorted(maps.Keys(s.files)) }

// Read returns the content of a file.
func (s *Site) Read(name string) ([]byte, error) {
	f := s.files[name]
	if f == nil {
		return nil, fmt.Errorf("read %q of the documentation: %w", name, fs.ErrNotExist)
	}
	return f.plain()
}

// pagePath returns the path of the web page of a source: install.html of install.md.
func pagePath(source string) string {
	dir, name := path.Split(source)
	if name == "README.md" {
		return dir + "index.html"
	}
	return dir + strings.TrimSuffix(name, ".md") + ".html"
}

// relative returns the address of a path for a page.
func relative(page, to string) string { return strings.Repeat("../", strings.Count(page, "/")) + to }

var released = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

// inRepository returns the URL of a file of the repository, in the version of the site.
func (s *Site) inRepository(name string) string {
	if released.MatchString(s.options.Version) {
		return repository + "blob/v" + s.options.Version + "/" + name
	}
	return repository + "blob/main/" + name
}
