package api_test

import (
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
)

// Upstreams are shown to the operator and hidden from tenants.
func TestUpstreams(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(o *api.Options) {
		o.Models.Upstreams = func() []berth.Upstream {
			return []berth.Upstream{{Object: "upstream", Name: "azure", Circuit: "open",
				Keys: []berth.UpstreamKey{{Name: "AZURE_KEY", RestSeconds: 7}}}}
		}
	})
	h.key("sk-operator", berth.DefaultProject)
	got := h.call(200, "GET", "/v1/upstreams", nil)
	if got.at("data", 0, "name") != "azure" || got.at("data", 0, "circuit") != "open" || got.at("data", 0, "keys", 0,
		"rest_seconds") != 7.0 {
		t.Errorf("got %v", got)
	}
	unknown := h.call(404, "GET", "/v1/no-such-route", nil)
	h.key("sk-tenant", "proj_a")
	hidden := h.call(404, "GET", "/v1/upstreams", nil)
	for _, field := range []string{"type", "code", "param"} {
		if hidden.at("error", field) != unknown.at("error", field) {
			t.Errorf("%s: got %v, want %v as of a route that does not exist", field, hidden.at("error", field),
				unknown.at("error", field))
		}
	}
	h = newHouse(t, nil)
	if got := h.call(200, "GET", "/v1/upstreams", nil); len(got.at("data").([]any)) != 0 {
		t.Errorf("without upstreams: got %v", got)
	}
}
