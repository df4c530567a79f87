package site

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/berth-run/berth/docs"
)

// options are those of the documentation of this repository.
func options(t *testing.T) Options {
	t.Helper()
	openAPI, err := os.ReadFile("../api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	return Options{Docs: docs.Files, OpenAPI: openAPI, Version: "1.2.3"}
}

func newSite(t *testing.T) *Site {
	t.Helper()
	s, err := New(options(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func read(t *testing.T, s *Site, name string) string {
	t.Helper()
	text, err := s.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	ids        = regexp.MustCompile(` id="([^"]+)"`)
	references = regexp.MustCompile(` (?:href|src)="([^"]+)"`)
)

// TestLinks follows every link of every page: each leads to a file of the site, and to a part that the file has. Pages
// load nothing from elsewhere, and no style or script is in their text.
func TestLinks(t *testing.T) {
	s := newSite(t)
	texts := map[string]string{}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, name := range s.Paths() {
		if path.Ext(name) == ".html" {
			wait.Go(func() {
				text := read(t, s, name)
				mu.Lock()
				defer mu.Unlock()
				texts[name] = text
			})
		}
	}
	wait.Wait()
	parts := map[string]map[string]bool{}
	for name, text := range texts {
		parts[name] = map[string]bool{}
		for _, m := range ids.FindAllStringSubmatch(text, -1) {
			if parts[name][m[1]] {
				t.Errorf("%s has the id %s twice", name, m[1])
			}
			parts[name][m[1]] = true
		}
	}
	checked := 0
	for name, text := range texts {
		if strings.Contains(text, "style=") || strings.Count(text, "<script") != 1 {
			t.Errorf("%s has a style or a script in its text", name)
		}
		for _, m := range references.FindAllStringSubmatch(text, -1) {
			u, err := url.Parse(strings.ReplaceAll(m[1], "&amp;", "&"))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if u.IsAbs() {
				if strings.HasPrefix(m[0], " src") {
					t.Errorf("%s loads %s", name, m[1])
				}
				continue
			}
			checked++
			to := name
			if u.Path != "" {
				to = path.Join(path.Dir(name), u.Path)
			}
			switch {
			case s.files[to] == nil:
				t.Errorf("%s leads to %s, which does not exist", name, m[1])
			case u.Fragment != "" && !parts[to][u.Fragment]:
				t.Errorf("%s leads to %s, which has no such part", name, m[1])
			}
		}
	}
	if len(texts) < 600 || checked < 10000 {
		t.Errorf("only %d pages and %d links were found", len(texts), checked)
	}
}

// TestNavigation: each page of docs is in the lists of docs/README.md once, or is a decision.
func TestNavigation(t *testing.T) {
	s := newSite(t)
	seen := map[string]int{}
	for _, e := range s.nav.order {
		seen[e.Source]++
	}
	for _, name := range s.sources {
		if n := seen[name]; n != 1 && name != "README.md" {
			t.Errorf("docs/README.md lists %s %d times, want once", name, n)
		}
	}
	var chapters []string
	for _, c := range s.nav.chapters {
		chapters = append(chapters, c.Title)
	}
	if got, want := strings.Join(chapters, ", "), "Start, Guides, Concepts, Operate, Reference, Decisions"; got != want {
		t.Errorf("the chapters are %s, want %s", got, want)
	}
	for _, list := range []string{"index.html", "llms.txt"} {
		text := read(t, s, list)
		for _, e := range s.nav.order {
			if e.Source != "" && !strings.Contains(e.Source, "/") && !strings.Contains(text, e.Path) &&
				!strings.Contains(text, e.Source) {
				t.Errorf("%s lacks %s", list, e.Source)
			}
		}
	}
}

// TestDecisions: the list of decisions has each.
func TestDecisions(t *testing.T) {
	list := read(t, newSite(t), "decisions/README.md")
	names, err := fs.Glob(docs.Files, "decisions/0*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(list, "("+path.Base(name)+")") {
			t.Errorf("docs/decisions/README.md lacks %s", name)
		}
	}
}

// TestPage: a page has its title, its place, the neighbours, its parts, code with colours, and its Markdown.
func TestPage(t *testing.T) {
	s := newSite(t)
	text := read(t, s, "install.html")
	for _, want := range []string{"<title>Install · Berth</title>", `aria-current="page">Install</a>`, `rel="next"`,
		`<h2 id="from-source">`, `<a href="#from-source">`, `href="install.md"`, `<span class="com"> # `,
		`href="https://github.com/berth-run/berth/blob/v1.2.3/docs/install.md"`, `<div class="scroll" tabindex="0"`, ">1.2.3</span>"} {
		if !strings.Contains(text, want) {
			t.Errorf("install.html lacks %s", want)
		}
	}
	text = read(t, s, "decisions/index.html")
	for _, want := range []string{`href="../assets/site.css"`, `href="../install.html"`, `href="../decisions/0001-gvisor-start.html"`} {
		if !strings.Contains(text, want) {
			t.Errorf("decisions/index.html lacks %s", want)
		}
	}
	source := read(t, s, "hardening.md")
	if !strings.HasPrefix(source, "# Security hardening\n") ||
		!strings.Contains(source, "](https://github.com/berth-run/berth/blob/v1.2.3/SECURITY.md)") {
		t.Errorf("hardening.md is %.300s", source)
	}
	if strings.Contains(read(t, s, "api.html"), "written by") {
		t.Error("api.html shows a comment")
	}
}

// TestAddresses: links between pages lead to web pages, others to the repository.
func TestAddresses(t *testing.T) {
	s := newSite(t)
	for _, test := range [][3]string{
		{"install.md", "tls.md", "tls.html"},
		{"install.md", "tls.md#by-acme", "tls.html#by-acme"},
		{"install.md", "#x", "#x"},
		{"install.md", "https://example.com/a.md", "https://example.com/a.md"},
		{"install.md", "decisions/README.md", "decisions/index.html"},
		{"install.md", "../SECURITY.md#a", repository + "blob/v1.2.3/SECURITY.md#a"},
		{"install.md", "observe/alerts.yaml", "observe/alerts.yaml"},
		{"decisions/0001-gvisor-start.md", "../install.md#a", "../install.html#a"},
		{"decisions/0001-gvisor-start.md", "README.md", "../decisions/index.html"},
		{"decisions/0001-gvisor-start.md", "../../SECURITY.md", repository + "blob/v1.2.3/SECURITY.md"},
		{"threat-model.md", "threat-model.svg", "threat-model.svg"},
	} {
		if got := s.address(test[0], test[1]); got != test[2] {
			t.Errorf("%s of %s leads to %s, want %s", test[1], test[0], got, test[2])
		}
	}
	s.options.Version = "1.2.3-snapshot.5.abcdef"
	if got := s.inRepository("LICENSE"); got != repository+"blob/main/LICENSE" {
		t.Errorf("a version without a tag leads to %s", got)
	}
}

// TestHighlight: colours change no text, and a quote in a word begins no string.
func TestHighlight(t *testing.T) {
	tags := regexp.MustCompile(`</?span[^>]*>`)
	for _, test := range [][3]string{
		{"sh", "echo 'a' # don't", `echo <span class="str">&#39;a&#39;</span><span class="com"> # don&#39;t</span>`},
		{"bash", `a="x # y"; b=${c#d}`, `a=<span class="str">&#34;x # y&#34;</span>; b=${c#d}`},
		{"python", "if x: f('<')", `<span class="key">if</span> x: f(<span class="str">&#39;&lt;&#39;</span>)`},
		{"json", `{"a": true}`, `{<span class="str">&#34;a&#34;</span>: <span class="key">true</span>}`},
		{"js", "a // b", `a <span class="com">// b</span>`},
		{"", "a < b # c", "a &lt; b # c"},
		{"unknown", `"a"`, "&#34;a&#34;"},
	} {
		got := highlight(test[0], test[1])
		if got != test[2] {
			t.Errorf("%s %q: got %s, want %s", test[0], test[1], got, test[2])
		}
		plain := strings.NewReplacer("&#39;", "'", "&#34;", `"`, "&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(
			tags.ReplaceAllString(got, ""))
		if plain != test[1] {
			t.Errorf("%q became %q", test[1], plain)
		}
	}
}

// TestSearchIndex: the index has a row for each part of each page and for each route.
func TestSearchIndex(t *testing.T) {
	index := read(t, newSite(t), "assets/index.js")
	for _, want := range []string{`["configuration.html#memory","Configuration","Memory","`,
		`["install.html","Install","Install","Berth needs Linux`, `["decisions/0019-sleep.html","`,
		`["api/containers.html#CreateContainer","API reference","`} {
		if !strings.Contains(strings.ToLower(index), strings.ToLower(want)) {
			t.Errorf("the index lacks %s", want)
		}
	}
	if !strings.HasPrefix(index, "berthIndex([") || !strings.HasSuffix(index, "]);\n") || strings.Contains(index, "</script") {
		t.Error("the index is no script")
	}
}

// TestHTMLIsRefused: a page with HTML is an error, because it would be shown without it.
func TestHTMLIsRefused(t *testing.T) {
	o := options(t)
	o.Docs = mapFS(map[string]string{"README.md": "# A\n\n## Start\n\n- [B](b.md): c.\n", "b.md": "# B\n\n<b>x</b>\n"})
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read("b.html"); err == nil || !strings.Contains(err.Error(), "<b>") {
		t.Errorf("got %v", err)
	}
}

// TestDuplicateHeadings: headings of the same text have fragments of their own, as at GitHub.
func TestDuplicateHeadings(t *testing.T) {
	o := options(t)
	o.Docs = mapFS(map[string]string{"README.md": "# A\n\n## Start\n\n- [B](b.md): c.\n", "b.md": "# B\n\n## `X` y\n\n## X y\n"})
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.render("b.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := []heading{{2, "X y", "x-y"}, {2, "X y", "x-y-1"}}; !slices.Equal(p.Headings, want) {
		t.Errorf("got %v, want %v", p.Headings, want)
	}
}

func BenchmarkSite(b *testing.B) {
	openAPI, err := os.ReadFile("../api/openapi.json")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := New(Options{Docs: docs.Files, OpenAPI: openAPI, Version: "1.2.3"})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Read("install.html"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIndex(b *testing.B) {
	s, err := New(Options{Docs: docs.Files, OpenAPI: []byte("{}"), Version: "1.2.3"})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		text, err := s.searchIndex()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(text)), "bytes")
	}
}

// mapFS returns files in memory.
func mapFS(files map[string]string) fs.FS {
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}
