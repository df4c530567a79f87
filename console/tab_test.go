package console

import (
	"strings"
	"testing"

	"github.com/berth-run/berth"
)

// TestLooking: pages that show a container do not use it, so that it ends on time although a tab is open.
func TestLooking(t *testing.T) {
	const at = "/v1/containers/cntr_1"
	api := &stubAPI{answers: map[string]any{
		at: berth.Container{ID: "cntr_1", Status: berth.ContainerRunning,
			NetworkPolicy: berth.NetworkPolicy{Type: "allowlist", AllowedDomains: []string{"a.example"}}},
		at + "/stats": berth.ContainerStats{}, at + "/stats/history": listed(), at + "/logs": listed(), at + "/audit": listed(),
		"/v1/responses": listed(), "/v1/snapshots": listed(), "/v1/containers": listed(), "/v1/templates": listed(),
	}}
	for _, page := range []string{"", "/resources", "/network", "/snapshots"} {
		api.asked = nil
		api.page(t, "containers/cntr_1"+page)
		looked := false
		for _, asked := range api.asked {
			path, query, _ := strings.Cut(asked, "?")
			if path == at {
				looked = true
				if query != "touch=false" {
					t.Errorf("%q: %s is a use of the container", page, asked)
				}
			}
		}
		if !looked {
			t.Errorf("%q has not read the container", page)
		}
	}
}
