package manual

import (
	"os"
	"strings"
	"testing"
)

func open(t *testing.T) *Manual {
	text, err := os.ReadFile("../../api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(text, "https://example.com/docs/")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Each page renders, with its parts. That their links resolve is tested by package site.
func TestPages(t *testing.T) {
	m := open(t)
	sections, schemas := m.Sections(), m.Schemas()
	if len(sections) < 15 || len(schemas) < 100 || len(m.Routes()) < 150 {
		t.Errorf("got %d sections, %d schemas and %d routes", len(sections), len(schemas), len(m.Routes()))
	}
	for _, p := range append(sections, schemas...) {
		text, parts, err := m.Render(p.Path)
		if err != nil {
			t.Error(err)
		}
		for _, part := range parts {
			if !strings.Contains(string(text), `id="`+part.Fragment+`"`) {
				t.Errorf("%s lacks its part %s", p.Path, part.Fragment)
			}
		}
	}
	for path, want := range map[string]string{
		"index.html":                       "/<wbr>v1/<wbr>responses/<wbr>{response_id}/<wbr>cancel",
		"containers.html":                  "Create a container",
		"schemas/CreateContainerBody.html": "berth",
	} {
		if text, _, err := m.Render(path); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q: %v", path, want, err)
		}
	}
}

func TestUnknownPages(t *testing.T) {
	m := open(t)
	for _, path := range []string{"none.html", "schemas/none.html", "schemas/<script>.html", "../index.html", ""} {
		if text, _, err := m.Render(path); err == nil {
			t.Errorf("%s: got %s", path, text)
		}
	}
}

func TestBrokenDocument(t *testing.T) {
	if _, err := New([]byte("{"), ""); err == nil {
		t.Error("a document that is no JSON has a manual")
	}
}

func TestBreakable(t *testing.T) {
	for text, want := range map[string]string{"/v1/a": "/<wbr>v1/<wbr>a", "a.b_c=<d>": "a.<wbr>b_c=<wbr>&lt;d&gt;", "https://x": "https://<wbr>x",
		"a/": "a/", "": ""} {
		if got := Breakable(text); string(got) != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}
