package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/audit"
)

// TestE2BNetwork changes the rules for the connections of a sandbox while it runs: from nothing to one
// host, to nothing, and back after the server was killed.
func TestE2BNetwork(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	began, ended := make(chan bool, 1), make(chan bool, 1)
	site := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			began <- true
			<-r.Context().Done()
			ended <- true
			return
		}
		_, _ = io.WriteString(w, "ahoy")
	}), ReadHeaderTimeout: time.Minute}
	go func() { _ = site.Serve(l) }()
	defer site.Close()
	at := net.JoinHostPort(host, fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
	addresses, err := net.LookupHost(host)
	if err != nil {
		t.Fatal(err)
	}
	places := []string{at} // a name that leads to this machine needs the address as well
	for _, address := range addresses {
		places = append(places, net.JoinHostPort(address, fmt.Sprint(l.Addr().(*net.TCPAddr).Port)))
	}
	list, err := json.Marshal(places)
	if err != nil {
		t.Fatal(err)
	}
	s := newServerWith(t, fmt.Sprintf("containers: {network: {private: %s}}\n", list))

	send := func(method, path, body string, status int) (answer []byte) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if answer, err = io.ReadAll(resp.Body); err != nil || resp.StatusCode != status {
			t.Fatalf("%s %s %s: got %d %s, %v, want %d", method, path, body, resp.StatusCode, answer, err, status)
		}
		return answer
	}
	var made struct{ SandboxID string }
	if err := json.Unmarshal(send("POST", "/v2/sandboxes", `{"templateID":"base","allow_internet_access":false}`,
		http.StatusCreated), &made); err != nil {
		t.Fatal(err)
	}
	id, network := "cntr_"+made.SandboxID, "/sandboxes/"+made.SandboxID+"/network"
	get := fmt.Sprintf(
		`python3 -c 'import urllib.request as u; print(u.urlopen("http://%s/", timeout=30).read().decode())' 2>/dev/null || echo refused`, at)
	reaches := func(when, want string) {
		t.Helper()
		if got := strings.TrimSpace(s.in(id, get)); got != want {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
	allowed := fmt.Sprintf(`{"denyOut":["0.0.0.0/0"],"allowOut":%s}`, list)

	reaches("without a network", "refused")
	send("PUT", network, allowed, http.StatusNoContent)
	reaches("with an allowed host", "ahoy")

	s.in(id, fmt.Sprintf(`python3 -c 'import urllib.request as u; u.urlopen("http://%s/hang")' >/dev/null 2>&1 &`, at))
	select {
	case <-began:
	case <-time.After(time.Minute):
		t.Fatal("the request has not arrived")
	}
	send("PUT", network, `{"allow_internet_access":false}`, http.StatusNoContent)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the connection has outlived the policy that allowed it")
	}
	reaches("without a network again", "refused")

	s.kill()
	s.start()
	reaches("after a restart", "refused")
	send("PUT", network, allowed, http.StatusNoContent)
	reaches("with an allowed host after a restart", "ahoy")
	s.kill()
	s.start()
	reaches("with an allowed host, after another restart", "ahoy")

	var shown struct {
		NetworkPolicy struct {
			Type           string
			AllowedDomains []string `json:"allowed_domains"`
		} `json:"network_policy"`
	}
	if err := json.Unmarshal(send("GET", "/v1/containers/"+id, "", http.StatusOK), &shown); err != nil ||
		shown.NetworkPolicy.Type != "allowlist" || len(shown.NetworkPolicy.AllowedDomains) != len(places) {
		t.Errorf("the container has the policy %+v, %v", shown, err)
	}
	var record struct{ Data []audit.Entry }
	if err := json.Unmarshal(send("GET", "/v1/containers/"+id+"/audit", "", http.StatusOK), &record); err != nil {
		t.Fatal(err)
	}
	var changes []string
	for _, e := range record.Data {
		if e.Action == audit.NetworkChanged {
			changes = append(changes, e.Reason)
		}
	}
	if got := strings.Join(changes, " "); got != "allowlist disabled allowlist" {
		t.Errorf("the audit record has the changes %q", got)
	}

	send("PUT", network, `{"denyOut":["example.com"]}`, http.StatusBadRequest)
	send("PUT", network, `{"rules":{"*":[]}}`, http.StatusBadRequest)
	send("PUT", network, `{"denyOut":["0.0.0.0/0"],"allowOut":["not a host"]}`, http.StatusBadRequest)
	send("PUT", "/sandboxes/0000000000000000/network", allowed, http.StatusNotFound)
	reaches("after refused changes", "ahoy")
}
