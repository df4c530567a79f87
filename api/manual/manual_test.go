package manual

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
)

func handler(t *testing.T) http.Handler {
	text, err := os.ReadFile("../openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	m, mux := New(text), http.NewServeMux()
	mux.HandleFunc("GET /docs", m.Overview)
	mux.HandleFunc("GET /docs/{section}", m.Section)
	mux.HandleFunc("GET /docs/schemas/{schema}", m.Schema)
	mux.HandleFunc("GET /openapi.json", func(http.ResponseWriter, *http.Request) {})
	return mux
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

// All pages that the overview reaches exist, with the parts to which links point, and load nothing from elsewhere.
func TestPages(t *testing.T) {
	h := handler(t)
	links := regexp.MustCompile(`href="(/[^"#]*)(?:#([^"]*))?"`)
	pages, queue := map[string]string{}, []string{"/docs"}
	anchors := map[string]string{}
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		if _, seen := pages[path]; seen {
			continue
		}
		w := get(h, path)
		pages[path] = w.Body.String()
		if w.Code != http.StatusOK {
			t.Errorf("%s: got %d", path, w.Code)
		}
		if strings.HasSuffix(path, ".css") || strings.HasSuffix(path, ".json") {
			continue
		}
		if got := w.Header().Get("Content-Security-Policy"); got != policy {
			t.Errorf("%s: got the policy %q", path, got)
		}
		if regexp.MustCompile(`<script|src=|style=|<link rel="stylesheet" href="[^/]`).MatchString(pages[path]) {
			t.Errorf("%s loads something", path)
		}
		for _, m := range links.FindAllStringSubmatch(pages[path], -1) {
			queue = append(queue, m[1])
			if m[2] != "" {
				anchors[m[1]+"#"+m[2]] = path
			}
		}
	}
	for link, from := range anchors {
		path, anchor, _ := strings.Cut(link, "#")
		if !strings.Contains(pages[path], `id="`+anchor+`"`) {
			t.Errorf("%s links to %s, which does not exist", from, link)
		}
	}
	if len(pages) < 100 || len(anchors) < 100 {
		t.Errorf("found %d pages and %d links to parts", len(pages), len(anchors))
	}
	for path, want := range map[string]string{
		"/docs":                             "/v1/responses/{response_id}/cancel",
		"/docs/containers":                  "Create a container",
		"/docs/schemas/CreateContainerBody": "berth",
	} {
		if !strings.Contains(get(h, path).Body.String(), want) {
			t.Errorf("%s lacks %q", path, want)
		}
	}
}

func TestUnknownPages(t *testing.T) {
	h := handler(t)
	for _, path := range []string{"/docs/none", "/docs/schemas/none", "/docs/schemas/%3Cscript%3E"} {
		if w := get(h, path); w.Code != http.StatusNotFound || strings.Contains(w.Body.String(), "<script") {
			t.Errorf("%s: got %d, %s", path, w.Code, w.Body)
		}
	}
}
