package server

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/audit"
)

// A server sends its audit record to a webhook. While that takes nothing and more entries wait than the operator allows,
// the server refuses new work and says why; it still deletes, and takes work again when the webhook is back.
func TestAuditForward(t *testing.T) {
	t.Setenv("SIEM_SECRET", "whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
	entries := make(chan audit.Entry, 1000)
	away := make(chan bool, 1)
	away <- false
	siem := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		down := <-away
		away <- down
		var body struct{ Entries []audit.Entry }
		if down || json.Unmarshal(raw, &body) != nil || r.Header.Get("webhook-signature") == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		for _, e := range body.Entries {
			entries <- e
		}
	}))
	t.Cleanup(siem.Close)
	config := "driver: unsafe-local\ncontainers: {pool: 0}\n" +
		"audit: {forward: [{type: webhook, name: siem, secret_env: SIEM_SECRET, max_behind: 1, url: '" + siem.URL + "'}]}\n"
	dir := t.TempDir()
	_, web := testServer(t, dir, config)
	create := func() (int, string) {
		t.Helper()
		resp, err := http.Post(web.URL+"/v1/containers", "application/json", strings.NewReader(`{"name": "box"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(raw)
	}
	status, text := create()
	if status != http.StatusOK {
		t.Fatalf("got %d %s", status, text)
	}
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		t.Fatal(err)
	}
	want := int64(0)
	for e := range entries {
		if e.Seq != want {
			t.Fatalf("got entry %d, want %d", e.Seq, want)
		}
		if want++; string(e.Container) == made.ID && e.Action == audit.ContainerCreated {
			break
		}
	}

	<-away
	away <- true
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, web.URL+"/v1/containers/"+made.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("delete: got %s", resp.Status)
	}
	// The deletion is acknowledged when its entries are on the disk: container.ended, and others before or after it.
	for n := 0; ; n++ {
		if status, text = create(); status == http.StatusServiceUnavailable {
			break
		}
		if n > 5 {
			t.Fatalf("more than %d entries wait, and the server takes new work: got %d %s", n, status, text)
		}
	}
	if !strings.Contains(text, `has reached the target \"siem\"`) {
		t.Errorf("got %s", text)
	}
	<-away
	away <- false
	for e := range entries {
		if e.Action == audit.ContainerEnded && string(e.Container) == made.ID {
			break
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "audit-forward", "siem")); err != nil {
		t.Error(err)
	}
}

// A target that cannot be used is an error at the start.
func TestAuditForwardErrors(t *testing.T) {
	for config, want := range map[string]string{
		"{type: webhook, url: 'http://127.0.0.1:1', secret_env: UNSET_SECRET}": "UNSET_SECRET is not set",
		"{type: otlp, url: 'http://127.0.0.1:1', headers_env: UNSET_HEADERS}":  "UNSET_HEADERS is not set",
		"{type: syslog, address: 'localhost:1', ca_file: /nonexistent}":        "ca_file: open /nonexistent",
		"{type: syslog, address: 'localhost:1', cert_file: /x, key_file: /y}":  "cert_file: open /x",
		"{type: otlp, url: 'http://127.0.0.1:1', ca_file: /proc/self/cmdline}": "has no certificate in PEM",
	} {
		startsNot(t, t.TempDir(), "driver: unsafe-local\naudit: {forward: ["+config+"]}\n", want)
	}
}
