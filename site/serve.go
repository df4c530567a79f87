package site

import (
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

// policy lets a page load files of this server and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// picturePolicy is that of a picture that is opened alone: it has styles of its own.
const picturePolicy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"

// kinds are the media types of files.
var kinds = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".md": "text/markdown; charset=utf-8", ".txt": "text/plain; charset=utf-8",
	".json": "application/json", ".yaml": "text/plain; charset=utf-8", ".svg": "image/svg+xml",
	".png": "image/png", ".woff2": "font/woff2"}

// A Handler serves a site below a path.
type Handler struct {
	prefix string // such as /docs/
	site   func() (*Site, error)
}

// NewHandler returns the handler of a site, which it makes at the first request.
func NewHandler(prefix string, o Options) *Handler {
	return &Handler{prefix, sync.OnceValues(func() (*Site, error) { return New(o) })}
}

// ServeHTTP serves the file whose path is the path value "path". It redirects a path without an extension, and one of
// the API's reference that lacks its directory, to the page.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, err := h.site()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	name := r.PathValue("path")
	if name == "" || strings.HasSuffix(name, "/") {
		name += "index.html"
	}
	if f := s.files[name]; f != nil {
		serveFile(w, r, name, f)
		return
	}
	for _, other := range []string{name + ".html", name + "/index.html", apiDir + name + ".html"} {
		if s.files[other] != nil {
			http.Redirect(w, r, h.prefix+strings.TrimSuffix(other, "index.html"), http.StatusPermanentRedirect)
			return
		}
	}
	s.notFound(w, r, h.prefix)
}

func serveFile(w http.ResponseWriter, r *http.Request, name string, f *file) {
	p, err := f.packed()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	kind := kinds[path.Ext(name)]
	setHeaders(w, kind)
	h := w.Header()
	h.Set("ETag", p.tag)
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("If-None-Match"), p.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := p.gzip
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
	} else if body, err = f.plain(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// setHeaders sets the headers of a file. Browsers ask whether it has changed, because a new version may have other
// files at the same paths.
func setHeaders(w http.ResponseWriter, kind string) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Security-Policy", policy)
	if media, _, err := mime.ParseMediaType(kind); err == nil && media == "image/svg+xml" {
		h.Set("Content-Security-Policy", picturePolicy)
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
}

// notFound serves the answer for a path without a file.
func (s *Site) notFound(w http.ResponseWriter, _ *http.Request, prefix string) {
	v := s.view("", &page{Title: "Not found", Head: "<h1>Not found</h1>", HTML: "<p>The documentation has no such page. " +
		"Search for it, or choose one of the navigation.</p>"})
	v.Root = prefix
	text, err := v.execute()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	setHeaders(w, kinds[".html"])
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write(text)
}
