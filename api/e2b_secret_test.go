package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/secrets"
)

// newSecretHouse returns a house that stores secrets, and a function that calls it with a key.
func newSecretHouse(t *testing.T) (*house, func(key string, want int, method, path, body string) string) {
	var stop context.CancelFunc
	h := newHouse(t, withSandboxOptions(t, &stop, func(o *sandboxParts) {
		o.Secrets = secrets.New(secrets.Options{Objects: o.objects, Seal: seal.New([32]byte{1})})
	}))
	h.key("sk-mine", "proj_mine")
	h.key("sk-theirs", "proj_theirs")
	return h, func(key string, want int, method, path, body string) string {
		t.Helper()
		status, text := h.sandboxCall(method, path, body, map[string]string{"X-API-Key": key})
		if status != want {
			t.Errorf("%s %s %s: got %d %s, want %d", method, path, body, status, text, want)
		}
		return text
	}
}

type e2bSecret struct {
	ID        string            `json:"secretID"`
	Name      string            `json:"name"`
	Version   int               `json:"currentVersion"`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt string            `json:"createdAt"`
	UpdatedAt string            `json:"updatedAt"`
}

// A secret has the shape that E2B's API describes, and no answer has its value.
func TestSandboxSecrets(t *testing.T) {
	t.Parallel()
	h, call := newSecretHouse(t)
	const value = "sk-the-value-of-it"
	var made, got e2bSecret
	text := call("sk-mine", 201, "POST", "/secrets", `{"name":"Vendor Key","value":"`+value+`"}`)
	check(t, json.Unmarshal([]byte(text), &made))
	if made.Name != "vendor key" || made.Version != 1 || made.Metadata == nil || made.CreatedAt == "" ||
		strings.Contains(text, value) {
		t.Errorf("created %s", text)
	}
	call("sk-mine", 409, "POST", "/secrets", `{"name":"vendor key","value":"`+value+`"}`)
	text = call("sk-mine", 400, "POST", "/secrets", `{"name":"sec_x","value":"`+value+`"}`)
	if strings.Contains(text, value) {
		t.Errorf("the error shows the value: %s", text)
	}
	call("sk-mine", 400, "POST", "/secrets", `{"name":"x"}`)
	call("sk-mine", 400, "POST", "/secrets", `{"name":"x","value":"`+value+`","metadata":{"a":1}}`)
	for _, ref := range []string{made.ID, "vendor%20key", "VENDOR%20KEY"} {
		check(t, json.Unmarshal([]byte(call("sk-mine", 200, "GET", "/secrets/"+ref, "")), &got))
		if diff := cmp.Diff(made, got); diff != "" {
			t.Errorf("%s: %s", ref, diff)
		}
		call("sk-theirs", 404, "GET", "/secrets/"+ref, "")
		call("sk-theirs", 404, "POST", "/secrets/"+ref, `{"value":"another"}`)
		call("sk-theirs", 404, "DELETE", "/secrets/"+ref, "")
	}
	check(t, json.Unmarshal([]byte(call("sk-mine", 200, "POST", "/secrets/"+made.ID,
		`{"value":"next-value","metadata":{"a":"b"}}`)), &got))
	if got.Version != 2 || got.Metadata["a"] != "b" || got.ID != made.ID {
		t.Errorf("updated %+v", got)
	}
	for i := range 4 {
		call("sk-mine", 201, "POST", "/secrets", fmt.Sprintf(`{"name":"k%d","value":"%s"}`, i, value))
	}
	var names []string
	for token, pages := "", 0; ; pages++ {
		req, err := http.NewRequestWithContext(t.Context(), "GET", h.url+"/secrets?limit=2&nextToken="+token, nil)
		check(t, err)
		req.Header.Set("X-API-Key", "sk-mine")
		resp, err := http.DefaultClient.Do(req)
		check(t, err)
		var page []e2bSecret
		check(t, json.NewDecoder(resp.Body).Decode(&page))
		resp.Body.Close()
		for _, s := range page {
			names = append(names, s.Name)
		}
		if token = resp.Header.Get("X-Next-Token"); token == "" || pages > 5 {
			break
		}
	}
	if want := []string{"vendor key", "k0", "k1", "k2", "k3"}; !slices.Equal(names, want) {
		t.Errorf("the pages have %q, want %q", names, want)
	}
	call("sk-mine", 400, "GET", "/secrets?nextToken=x!", "")
	call("sk-mine", 400, "GET", "/secrets?nextToken=bm9uZQ", "")
	if text := call("sk-theirs", 200, "GET", "/secrets", ""); text != "[]" {
		t.Errorf("another project's list is %s", text)
	}
	call("sk-mine", 204, "DELETE", "/secrets/vendor%20key", "")
	call("sk-mine", 404, "GET", "/secrets/"+made.ID, "")
	call("sk-mine", 404, "DELETE", "/secrets/"+made.ID, "")
}

// The rules of a sandbox are shown as they were sent. A rule that cannot be kept is refused.
func TestSandboxRules(t *testing.T) {
	t.Parallel()
	_, call := newSecretHouse(t)
	const rules = `{"*.example.com":[{"transform":{"headers":{"X-Team":"a"}}}],"api.example.com":[{"transform":{"headers":{"Authorization":"Bearer ${e2b.secrets.key}"}}},{}]}`
	body := func(rules string) string {
		return `{"templateID":"base","allow_internet_access":false,"network":{"denyOut":["0.0.0.0/0"],"maskRequestHost":"x","rules":` + rules + `}}`
	}
	var shown struct {
		Internet *bool `json:"allowInternetAccess"`
		Network  struct {
			DenyOut []string        `json:"denyOut"`
			Rules   json.RawMessage `json:"rules"`
			Public  bool            `json:"allowPublicTraffic"`
			Host    string          `json:"maskRequestHost"`
		} `json:"network"`
	}
	var s e2bSandbox
	check(t, json.Unmarshal([]byte(call("sk-mine", 201, "POST", "/v2/sandboxes", body(rules))), &s))
	check(t, json.Unmarshal([]byte(call("sk-mine", 200, "GET", "/sandboxes/"+s.ID, "")), &shown))
	if string(shown.Network.Rules) != rules || len(shown.Network.DenyOut) != 1 || !shown.Network.Public ||
		shown.Network.Host != "x" || shown.Internet == nil || *shown.Internet {
		t.Errorf("the sandbox has the network %+v with the rules %s", shown, shown.Network.Rules)
	}
	call("sk-mine", 204, "PUT", "/sandboxes/"+s.ID+"/network", `{"denyOut":["::/0"]}`)
	text := call("sk-mine", 200, "GET", "/sandboxes/"+s.ID, "")
	if strings.Contains(text, "rules") || strings.Contains(text, "allowInternetAccess") || !strings.Contains(text,
		`"denyOut":["::/0"]`) {
		t.Errorf("after a change without rules: %s", text)
	}
	for _, bad := range []string{
		`{"*":[]}`, `{"example.com:443":[]}`, `{"10.0.0.1":[]}`, `{"a b":[]}`, `{"example.com":[],"EXAMPLE.com":[]}`,
		`{"example.com":{}}`, `[]`,
		`{"example.com":[{"transform":{"headers":{"Host":"evil.example"}}}]}`,
		`{"example.com":[{"transform":{"headers":{"A":"b\r\nC: d"}}}]}`,
		`{"example.com":[{"transform":{"headers":{"A":"${e2b.identity.tokens.aws}"}}}]}`,
		`{"example.com":[{"transform":{"headers":{"A":1}}}]}`,
		`{"example.com":[{"transform":{"url":"x"}}]}`, `{"example.com":[{"other":{}}]}`,
	} {
		text := call("sk-mine", 400, "POST", "/v2/sandboxes", body(bad))
		if !strings.Contains(text, "network.rules") {
			t.Errorf("%s: the error does not name the field: %s", bad, text)
		}
		call("sk-mine", 400, "PUT", "/sandboxes/"+s.ID+"/network", `{"rules":`+bad+`}`)
	}
	hosts := map[string][]struct{}{}
	for i := range 101 {
		hosts[fmt.Sprintf("h%d.example.com", i)] = nil
	}
	many, err := json.Marshal(hosts)
	check(t, err)
	call("sk-mine", 400, "POST", "/v2/sandboxes", body(strings.ReplaceAll(string(many), "null", "[]")))
}
