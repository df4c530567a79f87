package site

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// serve returns a function that sends requests to a server of the site.
func serve(t *testing.T) func(path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("GET /docs/{path...}", NewHandler("/docs/", options(t)))
	return func(path string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "http://berth.test/", nil)
		r.URL.Path, r.URL.RawPath = path, ""
		r.RequestURI = path
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w
	}
}

// Files have their type and a policy that lets a page load only files of the server, and no cookie.
func TestServe(t *testing.T) {
	get := serve(t)
	for path, kind := range map[string]string{"/docs/": "text/html; charset=utf-8", "/docs/install.html": "text/html; charset=utf-8",
		"/docs/decisions/": "text/html; charset=utf-8", "/docs/api/schemas/Response.html": "text/html; charset=utf-8",
		"/docs/install.md": "text/markdown; charset=utf-8", "/docs/llms.txt": "text/plain; charset=utf-8",
		"/docs/assets/site.css": "text/css; charset=utf-8", "/docs/assets/site.js": "text/javascript; charset=utf-8",
		"/docs/assets/vendor/inter-5.3.0.woff2": "font/woff2", "/docs/threat-model.svg": "image/svg+xml",
		"/docs/observe/alerts.yaml": "text/plain; charset=utf-8", "/docs/observe/dashboard.json": "application/json",
		"/docs/console/home.png": "image/png", "/docs/openapi.json": "application/json"} {
		w := get(path)
		h := w.Header()
		if w.Code != http.StatusOK || h.Get("Content-Type") != kind || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got %d %v", path, w.Code, h)
		}
		if csp := h.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; ") ||
			strings.Contains(csp, "unsafe") != (kind == "image/svg+xml") || strings.Contains(csp, "http") {
			t.Errorf("%s: got the policy %s", path, csp)
		}
		if h.Get("Set-Cookie") != "" {
			t.Errorf("%s sets a cookie", path)
		}
		again := get(path, "If-None-Match", h.Get("ETag"))
		if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s: got %d with %d bytes for the same file", path, again.Code, again.Body.Len())
		}
	}
}

func TestServeCompressed(t *testing.T) {
	get := serve(t)
	plain, packed := get("/docs/install.html"), get("/docs/install.html", "Accept-Encoding", "gzip, br")
	if packed.Header().Get("Content-Encoding") != "gzip" || packed.Body.Len()*2 > plain.Body.Len() {
		t.Fatalf("got %v with %d of %d bytes", packed.Header(), packed.Body.Len(), plain.Body.Len())
	}
	r, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); err != nil || !bytes.Equal(text, plain.Body.Bytes()) {
		t.Errorf("the compressed page differs: %v", err)
	}
}

// Paths without an extension, and those of the API's reference before it had a directory, lead to their pages.
func TestRedirects(t *testing.T) {
	get := serve(t)
	for from, to := range map[string]string{"/docs/install": "/docs/install.html", "/docs/decisions": "/docs/decisions/",
		"/docs/api": "/docs/api.html", "/docs/containers": "/docs/api/containers.html",
		"/docs/schemas/Response": "/docs/api/schemas/Response.html"} {
		w := get(from)
		if w.Code != http.StatusPermanentRedirect || w.Header().Get("Location") != to {
			t.Errorf("%s: got %d to %q, want %s", from, w.Code, w.Header().Get("Location"), to)
		}
	}
}

// No path leads out of the site or to another host, and none is shown.
func TestHostilePaths(t *testing.T) {
	get := serve(t)
	for _, path := range []string{"/docs/none", "/docs/../../etc/passwd", "/docs/..%2f..%2fetc/passwd", "/docs/%2e%2e/go.mod",
		"/docs/..\\..\\go.mod", "/docs/docs.go", "/docs/../site/site.go", "/docs//etc/passwd", "/docs//evil.example/",
		"/docs/assets/", "/docs/assets/vendor", "/docs/assets/vendor/SHA256SUMS", "/docs/assets/console.js",
		"/docs/install.html/", "/docs/install.html/../../..", "/docs/<script>alert(1)</script>", "/docs/schemas/<script>",
		"/docs/\x00", "/docs/" + strings.Repeat("a/", 5000)} {
		w := get(path)
		switch location := w.Header().Get("Location"); {
		case location != "":
			if strings.HasPrefix(location, "//") || strings.Contains(location, "evil.example") && !strings.HasPrefix(location, "/docs/") {
				t.Errorf("%q leads to %s", path, location)
			}
		case w.Code != http.StatusNotFound:
			t.Errorf("%q: got %d", path, w.Code)
		case strings.Contains(w.Body.String(), "alert(1)") || strings.Contains(w.Body.String(), "root:"):
			t.Errorf("%q is shown: %s", path, w.Body)
		}
	}
}
