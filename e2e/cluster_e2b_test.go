package e2e

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// TestClusterE2B uses sandboxes with E2B's SDK through three servers behind a proxy that sends each request
// to the next one. Afterwards no server has a container left.
func TestClusterE2B(t *testing.T) {
	f := newFleet(t, "1m")
	c := nodeClient{name: "e2b", dir: "node", tests: []string{"e2b-cluster.test.mjs"}}
	// the driver does not isolate files
	c.run(t, &server{t: t, url: f.url, state: f.servers[0].state}, "SANDBOX_DIR="+t.TempDir())
	if t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, s := range f.servers {
		s.waitUntil("no container is left", func() bool {
			var list struct{ Data []any }
			_, err := call(ctx, http.MethodGet, s.url+"/v1/containers", "", nil, &list)
			return err == nil && len(list.Data) == 0
		})
	}
}
