package api

import (
	"bytes"
	goflag "flag"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/contract"
	"github.com/berth-run/berth/api/reference"
)

const pageStart = "<!-- written by go test ./api -run TestReferencePage -update -->\n"

// updating reports whether to write the files in place of comparing them; conformance_test.go
// defines the flag.
func updating() bool {
	f := goflag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

// generated compares a file with what the sources make, or writes it.
func generated(t *testing.T, name string, want []byte) {
	t.Helper()
	if updating() {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the sources say; if that is intended, run this test with -update", name)
	}
}

func openAPIDocument(t *testing.T) []byte {
	t.Helper()
	doc, err := reference.Document(described(), reference.Options{
		Root: "..", Module: "github.com/berth-run/berth",
		Special: map[reflect.Type]map[string]any{
			reflect.TypeFor[berth.Amount](): {"type": "number"},
			reflect.TypeFor[execCommand](): {"description": "A program with its arguments, or a line for /bin/sh.",
				"anyOf": []any{map[string]any{"type": "string"},
					map[string]any{"type": "array", "items": map[string]any{"type": "string"}}}},
			reflect.TypeFor[berth.ApprovalPolicy](): {"description": "always, never, or an object: see docs/agents.md."},
		},
		Extensions: map[string]any{"CreateResponse": berth.RequestBerth{}, "Response": berth.ResponseBerth{},
			"Model":               berth.ModelBerth{},
			"CreateContainerBody": berth.ContainerExtension{}, "ContainerResource": berth.ContainerBerth{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// openapi.json is what the routes and their types make.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	doc := openAPIDocument(t)
	generated(t, "openapi.json", doc)
	if err := reference.Validate(doc); err != nil {
		t.Error(err)
	}
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	paths := tree.(map[string]any)["paths"].(map[string]any)
	for _, op := range contract.Load().Operations {
		item, _ := paths[contract.Prefix+op.Path].(map[string]any)
		if item[strings.ToLower(op.Method)] == nil {
			t.Errorf("the document lacks %s, which OpenAI's has", op)
		}
	}
}

// Every route is described once, and nothing else is.
func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	var routes, listed []string
	h := new(handlers)
	for _, rt := range append(h.routes(), h.keyless()...) {
		routes = append(routes, rt.Pattern())
	}
	for _, section := range described() {
		for _, r := range section.Routes {
			listed = append(listed, r.Pattern)
			if r.Page == "" {
				continue
			}
			page, _, _ := strings.Cut(r.Page, "#")
			if _, err := os.Stat("../docs/" + page); err != nil {
				t.Errorf("%s: %v", r.Pattern, err)
			}
		}
	}
	slices.Sort(routes)
	slices.Sort(listed)
	for _, pattern := range routes {
		if !slices.Contains(listed, pattern) {
			t.Errorf("describe %s in reference_table_test.go", pattern)
		}
	}
	for i, pattern := range listed {
		if !slices.Contains(routes, pattern) || i > 0 && listed[i-1] == pattern {
			t.Errorf("reference_table_test.go describes %s, which is no route or described twice", pattern)
		}
	}
}

// docs/api.md lists all routes.
func TestReferencePage(t *testing.T) {
	t.Parallel()
	const name = "../docs/api.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(page), pageStart)
	if !found {
		t.Fatalf("%s has no line %q", name, pageStart)
	}
	generated(t, name, []byte(head+pageStart+reference.Page(described())))
}

// The document needs no key, and is not sent again to a client that has it.
func TestServeOpenAPI(t *testing.T) {
	t.Parallel()
	mux := http.HandlerFunc(openAPI)
	w := httptest.NewRecorder()
	mux(w, httptest.NewRequest("GET", "/openapi.json", nil))
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || !bytes.Equal(w.Body.Bytes(), document) {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
	r := httptest.NewRequest("GET", "/openapi.json", nil)
	r.Header.Set("If-None-Match", w.Header().Get("ETag"))
	again := httptest.NewRecorder()
	mux(again, r)
	if again.Code != 304 || again.Body.Len() > 0 {
		t.Errorf("got %d with %d bytes, want 304", again.Code, again.Body.Len())
	}
}
