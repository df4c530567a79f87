package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// TestClusterSandboxes uses what E2B's API stores, and its code interpreter, through all servers of a cluster.
func TestClusterSandboxes(t *testing.T) {
	f := newFleetOf(t, "gvisor", "1m")
	a, b, c := f.servers[0], f.servers[1], f.servers[2]
	send := func(t *testing.T, s *server, want int, method, path string, body, answer any) {
		t.Helper()
		if got := s.e2bCall(method, path, body, answer); got != want {
			t.Fatalf("%s %s: got %d, want %d", method, path, got, want)
		}
	}

	// The events of a sandbox are the same on each server, and a webhook receives each once, also after the server that
	// has the sandbox was killed.
	t.Run("Events", func(t *testing.T) {
		var mu sync.Mutex
		received := map[string]int{} // by the id of the event
		hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var event struct{ ID string }
			if err := json.NewDecoder(r.Body).Decode(&event); err == nil && r.Header.Get("e2b-signature") != "" {
				mu.Lock()
				received[event.ID]++
				mu.Unlock()
			}
		}))
		defer hook.Close()
		if _, errs, err := a.berth("webhook", "create", "--state", a.state, "--event", "sandbox.lifecycle.killed",
			"--event", "sandbox.lifecycle.updated", hook.URL); err != nil {
			t.Fatalf("%v: %s", err, errs)
		}
		for _, killed := range []bool{false, true} {
			var one e2bSandbox
			send(t, b, http.StatusCreated, "POST", "/v2/sandboxes", map[string]any{"templateID": "base",
				"timeout": 600}, &one)
			path := "/sandboxes/" + one.SandboxID
			send(t, c, http.StatusNoContent, "POST", path+"/timeout", map[string]any{"timeout": 900}, nil)
			if killed {
				b.kill()
				b.start()
			}
			send(t, a, http.StatusNoContent, "DELETE", path, nil, nil)
			for _, s := range f.servers {
				s.waitUntil("the sandbox has its events, and the webhook has received them", func() bool {
					var events []struct{ ID, Type string }
					if s.e2bCall("GET", "/events"+path, nil, &events) != http.StatusOK {
						return false
					}
					var types []string
					for _, e := range events {
						types = append(types, e.Type)
					}
					mu.Lock()
					defer mu.Unlock()
					return slices.Equal(types, []string{"sandbox.lifecycle.killed", "sandbox.lifecycle.updated",
						"sandbox.lifecycle.created"}) &&
						received[events[0].ID] == 1 && received[events[1].ID] == 1
				})
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(received) != 4 {
			t.Errorf("the webhook received %d events, want 4", len(received))
		}
	})

	t.Run("Secrets", func(t *testing.T) {
		type secret struct {
			SecretID       string
			CurrentVersion int
		}
		var made, found secret
		send(t, a, http.StatusCreated, "POST", "/secrets", map[string]string{"name": "vendor", "value": "a-value"},
			&made)
		send(t, b, http.StatusConflict, "POST", "/secrets", map[string]string{"name": "vendor", "value": "a-value"},
			nil)
		send(t, b, http.StatusOK, "POST", "/secrets/"+made.SecretID, map[string]string{"value": "another-value"}, nil)
		if send(t, c, http.StatusOK, "GET", "/secrets/vendor", nil, &found); found != (secret{made.SecretID, 2}) {
			t.Errorf("another server has %+v, want version 2 of %s", found, made.SecretID)
		}
		send(t, c, http.StatusNoContent, "DELETE", "/secrets/vendor", nil, nil)
		send(t, a, http.StatusNotFound, "GET", "/secrets/vendor", nil, nil)
	})

	// The console of a server shows the files of a container of another one, changes them, and opens a terminal.
	t.Run("Console", func(t *testing.T) {
		id := b.namedContainer("box")
		b.in(id, "echo from-another >note.txt")
		page := a.url + "/console/containers/" + id
		tab := newBrowser(t, 1200)
		tab.open(page + "/files?path=/mnt/data/note.txt")
		tab.shows(".preview pre", "from-another")
		if _, text := a.fetch("/console/containers/" + id +
			"/files/download?path=/mnt/data/note.txt"); text != "from-another\n" {
			t.Errorf("the download: got %q", text)
		}
		tab.open(page + "/terminals")
		tab.click(".actions button")
		tab.screens(".pane", "$")
		tab.types("cat note.txt; echo typed-$((6*7)) >note.txt; cat note.txt")
		tab.screens(".pane", "\nfrom-another\ntyped-42\n")
		tab.open(c.url + "/console/containers/" + id + "/terminals") // a third server joins the same terminal
		tab.screens(".pane", "\ntyped-42\n")
		tab.types("exit 3")
		tab.shows(".pane [role=status]", "ended: exit status 3")
		tab.checkQuiet()
	})

	// The SDK's requests go to one server after the other.
	t.Run("CodeInterpreter", func(t *testing.T) {
		pythonClient{name: "e2b-code-interpreter", env: "e2b", program: "use_e2b_code.py"}.run(t, f.url)
	})
}
