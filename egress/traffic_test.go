package egress

import (
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A connection is recorded before its host receives a byte, and at its end with the secrets that
// were sent.
func TestFlowsOfAConnection(t *testing.T) {
	var opened []Flow
	w, c, placeholder := secretWorld(t, func(http.ResponseWriter, *http.Request) {})
	addr, roots := serve(t, true, func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		opened = append(opened, w.flows...)
		w.mu.Unlock()
		io.Copy(rw, r.Body)
	})
	w.gate.Roots = roots
	w.host("v2.example.com", "93.184.216.40", 443, addr)
	w.gate.Secrets = append(w.gate.Secrets,
		Secret{Domain: "v2.example.com", Name: "UNUSED", Value: "never sent", Placeholder: NewPlaceholder("UNUSED")},
		Secret{Domain: "v2.example.com", Name: "TOKEN", Value: value, Placeholder: placeholder})
	if status, body := get(t, c, "https://v2.example.com/?t="+placeholder); status != 200 {
		t.Fatalf("got %d %s", status, body)
	}
	if got := w.gate.Traffic.Totals(); got.Allowed != 1 || got.Open != 1 || got.Sent == 0 || got.Received == 0 {
		t.Errorf("while it is open: got %+v", got)
	}
	c.CloseIdleConnections()
	got := append(opened, w.last())
	want := []Flow{
		{Target: Target{Host: "v2.example.com", Port: 443}, Opening: true, Allowed: true, Reason: "rule *.example.com"},
		{Target: Target{Host: "v2.example.com", Port: 443}, Allowed: true, Reason: "rule *.example.com",
			Secrets: []string{"TOKEN"}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Flow{}, "Addr", "Started", "Took", "Sent",
		"Received")); diff != "" {
		t.Errorf("flows (-want +got):\n%s", diff)
	}
	if got[0].Addr.String() != "93.184.216.40" || got[1].Sent == 0 || got[1].Received == 0 {
		t.Errorf("got %+v", got)
	}
	if _, status := w.connect("evil.org:443"); status != http.StatusForbidden {
		t.Errorf("got %d", status)
	}
	if got := w.gate.Traffic.Totals(); got.Allowed != 1 || got.Refused != 1 || got.Open != 0 {
		t.Errorf("after a refusal: got %+v", got)
	}
}
