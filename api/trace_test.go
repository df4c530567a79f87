package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/berth-run/berth/api"
)

// Telemetry of the Agents SDK and codex is accepted and not stored.
func TestTelemetryIsDiscarded(t *testing.T) {
	h := newHouse(t, func(o *api.Options) { o.Exchange.Limits.MaxBody = 1 << 10 })
	h.key("sk-berth-1", "proj_1")
	const secret = "what-nobody-keeps"
	if resp := h.send(t.Context(), "POST", "/v1/traces/ingest", `{"data":[{"object":"trace","id":"trace_1","workflow_name":"`+secret+`"}]}`); resp.StatusCode != http.StatusNoContent {
		t.Errorf("a trace: got %d, want 204", resp.StatusCode)
	}
	if resp := h.send(t.Context(), "POST", "/v1/traces/ingest", `{"data":"`+strings.Repeat("x", 1<<10)+`"}`); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a long trace: got %d, want 413", resp.StatusCode)
	}
	r := h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"x","client_metadata":{"session":"`+secret+`"}}`)
	if r["client_metadata"] != nil {
		t.Errorf("the response shows %v", r["client_metadata"])
	}
	h.token = "sk-berth-none"
	if resp := h.send(t.Context(), "POST", "/v1/traces/ingest", `{"data":[]}`); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: got %d, want 401", resp.StatusCode)
	}
}
