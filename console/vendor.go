package console

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"

	"github.com/berth-run/berth/console/assets"
)

// serveVendor serves GET /console/assets/vendor/{file}: a library, font or set of icons that scripts/vendor-console
// wrote.
// Its version is in its name, so browsers may keep it.
func serveVendor(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	kind, ok := map[string]string{"mjs": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8",
		"svg": "image/svg+xml", "woff2": "font/woff2"}[name[strings.LastIndexByte(name, '.')+1:]]
	file := "vendor/" + name
	if kind != "font/woff2" { // it is compressed
		file += ".gz"
	}
	packed, err := assets.Files.ReadFile(file)
	if err != nil || !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	if kind == "font/woff2" {
		_, _ = w.Write(packed)
		return
	}
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed)
		return
	}
	if plain, err := gzip.NewReader(strings.NewReader(string(packed))); err == nil {
		_, _ = io.Copy(w, plain)
	}
}
