package api

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/berth-run/berth/docs"
	"github.com/berth-run/berth/site"
)

// document is the OpenAPI document of all routes, which TestOpenAPI writes.
//
//go:embed openapi.json
var document []byte

// documentTag is the document's ETag.
var documentTag = sync.OnceValue(func() string {
	hash := sha256.Sum256(document)
	return fmt.Sprintf(`"%x"`, hash[:16])
})

// documentationPath is the path of the documentation's first page.
const documentationPath = "/docs/"

// documentation returns the handler of the documentation, which has the reference of the API.
func (h *handlers) documentation() *site.Handler {
	version := ""
	if h.health != nil {
		version = h.health.build.Version
	}
	return site.NewHandler(documentationPath, site.Options{Docs: docs.Files, OpenAPI: document, Version: version})
}

// openAPI serves GET /openapi.json.
func openAPI(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("ETag", documentTag())
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(document))
}
