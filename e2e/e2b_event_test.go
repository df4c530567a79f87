package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// TestE2BEventsKilled kills the server while sandboxes are deleted. After the next start each of them has one event of
// its end, and the webhook has received each of these events.
func TestE2BEventsKilled(t *testing.T) {
	s := newServer(t)
	var mu sync.Mutex
	received := map[string]bool{} // ids of events
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var event struct{ ID string }
		if err := json.NewDecoder(r.Body).Decode(&event); err == nil && r.Header.Get("e2b-signature") != "" {
			mu.Lock()
			received[event.ID] = true
			mu.Unlock()
		}
	}))
	defer hook.Close()
	if _, errs, err := s.berth("webhook", "create", "--state", s.state, "--event", "sandbox.lifecycle.killed",
		hook.URL); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	var sandboxes [4]e2bSandbox
	for i := range sandboxes {
		if got := s.e2bCall("POST", "/v2/sandboxes", map[string]any{"templateID": "base", "timeout": 600},
			&sandboxes[i]); got != http.StatusCreated {
			t.Fatalf("got %d", got)
		}
	}
	if got := s.e2bCall("DELETE", "/sandboxes/"+sandboxes[0].SandboxID, nil, nil); got != http.StatusNoContent {
		t.Fatalf("got %d", got)
	}
	begun := make(chan struct{}, len(sandboxes))
	for _, one := range sandboxes[1:] {
		go func() {
			r, err := http.NewRequest("DELETE", s.url+"/sandboxes/"+one.SandboxID, nil)
			begun <- struct{}{}
			if err != nil {
				return
			}
			if resp, err := http.DefaultClient.Do(r); err == nil { // the server may be gone
				resp.Body.Close()
			}
		}()
	}
	for range sandboxes[1:] {
		<-begun
	}
	s.kill()
	s.start()
	for _, one := range sandboxes[1:] {
		s.e2bCall("DELETE", "/sandboxes/"+one.SandboxID, nil, nil) // those that the first server did not delete
	}
	for _, one := range sandboxes {
		s.waitUntil("the end of a sandbox is an event, and its webhook is received", func() bool {
			var events []struct{ ID, Type string }
			if s.e2bCall("GET", "/events/sandboxes/"+one.SandboxID, nil, &events) != http.StatusOK {
				return false
			}
			var types []string
			for _, e := range events {
				types = append(types, e.Type)
			}
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(types, []string{"sandbox.lifecycle.killed", "sandbox.lifecycle.created"}) &&
				received[events[0].ID]
		})
	}
}
