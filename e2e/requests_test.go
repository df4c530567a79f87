package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestAllowedRequests has a program in a sandbox ask a host for what its policy allows and for what it does not, also
// after the server was killed: the program still trusts the certificate, and the rules hold.
func TestAllowedRequests(t *testing.T) {
	site := newSecureSite(t)
	s := newServerWith(t, fmt.Sprintf("containers: {network: {private: %s}}\n", site.places),
		"SSL_CERT_FILE="+site.authority)
	call := func(method, path, body string) asked {
		t.Helper()
		got, err := s.ask("", "", method, path, json.RawMessage(body))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	var made struct {
		ID     string
		Policy struct {
			Requests []string `json:"allowed_requests"`
		} `json:"network_policy"`
	}
	policy := fmt.Sprintf(`{"type":"allowlist","allowed_domains":%s,"allowed_requests":["GET %s/public/**"]}`,
		site.places, site.host)
	got := call("POST", "/v1/containers", `{"name":"c","network_policy":`+policy+`}`)
	if err := json.Unmarshal([]byte(got.text), &made); err != nil || len(made.Policy.Requests) != 1 {
		t.Fatalf("got %d %s, %v", got.status, got.text, err)
	}
	// ask sends a request with curl, and returns the status and the body. --path-as-is leaves dots to the server.
	ask := func(method, path string) string {
		return s.in(made.ID, fmt.Sprintf("curl -s --path-as-is -m 60 -X %s -H 'Authorization: mine' -w ' %%{http_code}' https://%s%s",
			method, site.at, path))
	}
	for _, when := range []string{"at first", "after a restart"} {
		if got := ask("GET", "/public/a?b=c"); got != "you sent mine 200" {
			t.Fatalf("%s: an allowed request: got %q", when, got)
		}
		<-site.got
		for _, r := range [][2]string{{"GET", "/private"}, {"DELETE", "/public/a"}, {"GET", "/public/../private"},
			{"GET", "/public/%2e%2e/private"}} {
			if got := ask(r[0], r[1]); !strings.HasSuffix(got, " 403") || !strings.Contains(got, "egress: ") {
				t.Errorf("%s: %s %s: got %q", when, r[0], r[1], got)
			}
			if len(site.got) > 0 {
				t.Errorf("%s: %s %s reached the host", when, r[0], r[1])
				<-site.got
			}
		}
		s.kill()
		s.start()
	}
	var refused struct {
		Data []struct{ Host, Reason string }
	}
	got = call("GET", "/v1/refused_connections", `null`)
	if err := json.Unmarshal([]byte(got.text), &refused); err != nil || !strings.Contains(fmt.Sprint(refused.Data), "DELETE /public/a is not among the allowed requests") {
		t.Errorf("the refused connections are %s, %v", got.text, err)
	}
	for field, body := range map[string]string{
		"not among 'allowed_domains'":       `{"type":"allowlist","allowed_domains":["a.example"],"allowed_requests":["GET b.example/"]}`,
		"may lead to a host":                `{"type":"allowlist","allowed_domains":["a.example","0.0.0.0/0"],"allowed_requests":["GET a.example/"]}`,
		"not a method, a host and a path":   `{"type":"allowlist","allowed_domains":["a.example"],"allowed_requests":["a.example"]}`,
		"'network_policy.allowed_requests'": `{"type":"open","allowed_requests":["GET a.example/"]}`,
	} {
		if got := call("POST", "/v1/containers", `{"name":"d","network_policy":`+body+`}`); got.status != 400 ||
			!strings.Contains(got.text, field) {
			t.Errorf("%s: got %d %s", body, got.status, got.text)
		}
	}
}
