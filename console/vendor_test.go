package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berth-run/berth/console/assets"
)

// TestVendor: the libraries are those that were checked when they were added, each with its licence.
func TestVendor(t *testing.T) {
	sums, err := assets.Files.ReadFile("vendor/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{"SHA256SUMS": true}
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		raw, err := assets.Files.ReadFile("vendor/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if got := sha256.Sum256(raw); hex.EncodeToString(got[:]) != sum {
			t.Errorf("%s was changed", name)
		}
		listed[name] = true
	}
	files, err := assets.Files.ReadDir("vendor")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !listed[f.Name()] {
			t.Errorf("%s has no sum", f.Name())
		}
		library, ok := strings.CutSuffix(f.Name(), ".mjs.gz")
		if ok && !listed[library+".LICENSE"] {
			t.Errorf("%s has no licence", library)
		}
	}
}

// TestVendorServed: a library is served compressed and plain, and nothing else is.
func TestVendorServed(t *testing.T) {
	c := New(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	get := func(name, encoding string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/console/assets/vendor/"+name, nil)
		r.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		return w
	}
	plain := get("xterm-6.0.0.mjs", "").Body.Bytes()
	packed := get("xterm-6.0.0.mjs", "br, gzip")
	in, err := gzip.NewReader(packed.Body)
	if err != nil || packed.Header().Get("Content-Encoding") != "gzip" ||
		!strings.HasPrefix(packed.Header().Get("Content-Type"), "text/javascript") {
		t.Fatalf("%v: %v", err, packed.Header())
	}
	if unpacked, err := io.ReadAll(in); err != nil || !bytes.Equal(unpacked, plain) || len(plain) < 100_000 {
		t.Errorf("%v: the two differ, or have only %d bytes", err, len(plain))
	}
	for _, name := range []string{"SHA256SUMS", "xterm-6.0.0.LICENSE", "xterm-6.0.0.mjs.gz", "none.mjs",
		"..%2Fconsole.css"} {
		if w := get(name, ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: got status %d", name, w.Code)
		}
	}
}
