package api

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"net/http"
	"sync"
	"time"
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

// openAPI serves GET /openapi.json.
func openAPI(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("ETag", documentTag())
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(document))
}
