package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/api/e2b"
	"github.com/berth-run/berth/container/build"
	"github.com/berth-run/berth/container/deadline"
	systemclock "github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/store"
)

// withSandboxes serves E2B's API in a house. Sandboxes end at their deadlines until stop is called.
func withSandboxes(t *testing.T, stop *context.CancelFunc) func(*api.Options) {
	return withSandboxOptions(t, stop, func(*sandboxParts) {})
}

// sandboxParts are the options of E2B's door and of the parts that it uses.
type sandboxParts struct {
	e2b.Options
	objects  store.Objects
	building build.Options
}

// withSandboxOptions is withSandboxes with other options.
func withSandboxOptions(t *testing.T, stop *context.CancelFunc, change func(*sandboxParts)) func(*api.Options) {
	return func(o *api.Options) {
		log := slog.New(slog.NewTextHandler(t.Output(), nil))
		parts := &sandboxParts{objects: storeOf(o), Options: e2b.Options{Containers: o.Containers,
			Files: o.Files, Volumes: o.Volumes, Webhooks: o.Webhooks,
			Secret:  func() [32]byte { return [32]byte{1} },
			MaxIdle: time.Hour, CPU: 2, Disk: 1 << 30, Domain: o.Preview.Domain, Keys: o.Exchange.Keys,
			Log: log, Now: time.Now}}
		change(parts)
		deadlines := deadline.Options{Containers: o.Containers, Placement: parts.Placement, Objects: parts.objects,
			CPU: parts.CPU, Log: log, Clock: shownClock{systemclock.System, parts.Now}}
		if o.Webhooks != nil {
			deadlines.Deliveries = o.Webhooks
		}
		parts.Deadlines = deadline.New(deadlines)
		of := &parts.building
		of.Containers, of.Placement, of.Snapshots, of.Files, of.Objects = o.Containers, parts.Placement, o.Snapshots,
			o.Files, parts.objects
		of.Memory, of.Log, of.Clock = parts.Memory, log, shownClock{systemclock.System, parts.Now}
		parts.Builds = build.New(*of)
		o.Sandboxes = e2b.New(parts.Options)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { parts.Deadlines.Run(ctx) })
		running.Go(func() { parts.Builds.Run(ctx) })
		*stop = func() { cancel(); running.Wait() }
		t.Cleanup(*stop)
	}
}

// A shownClock is the clock of the system that shows another time.
type shownClock struct {
	systemclock.Clock
	now func() time.Time
}

func (c shownClock) Now() time.Time                  { return c.now() }
func (c shownClock) Since(t time.Time) time.Duration { return c.now().Sub(t) }

// sandboxCall sends a request with headers and returns the status and the body.
func (h *house) sandboxCall(method, path, body string, header map[string]string) (int, string) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, strings.NewReader(body))
	check(h.t, err)
	req.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	check(h.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	check(h.t, err)
	return resp.StatusCode, string(text)
}

type e2bSandbox struct {
	ID    string `json:"sandboxID"`
	Token string `json:"envdAccessToken"`

	Traffic string `json:"trafficAccessToken"`
	Domain  string `json:"domain"`
}

func (h *house) newSandbox(key, body string) (s e2bSandbox) {
	h.t.Helper()
	body = strings.Replace(body, "{", `{"allow_internet_access":false,`, 1) // the house does not isolate networks
	status, text := h.sandboxCall("POST", "/v2/sandboxes", body, map[string]string{"X-API-Key": key})
	if status != http.StatusCreated {
		h.t.Fatalf("got %d %s", status, text)
	}
	check(h.t, json.Unmarshal([]byte(text), &s))
	return s
}

// Requests about another project's sandbox are answered like those about none.
func TestSandboxIsolation(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-theirs", "proj_theirs")
	h.key("sk-mine", "proj_mine")
	theirs := h.newSandbox("sk-theirs", `{"templateID":"base"}`)
	mine := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	none := strings.Repeat("0", len(theirs.ID))
	for _, route := range []string{"GET /sandboxes/ID", "DELETE /sandboxes/ID", "GET /sandboxes/ID/metrics",
		`POST /sandboxes/ID/timeout {"timeout":0}`, "POST /sandboxes/ID/refreshes",
		"POST /sandboxes/ID/pause", "POST /sandboxes/ID/snapshots", "POST /sandboxes/ID/fork", "GET /sandboxes/ID/logs",
		"GET /v2/sandboxes/ID/logs", "POST /sandboxes/ID/resume", "POST /sandboxes/ID/connect",
		"POST /v2/sandboxes/ID/connect"} {
		method, rest, _ := strings.Cut(route, " ")
		path, body, _ := strings.Cut(rest, " ")
		for _, id := range []string{theirs.ID, none} {
			status, text := h.sandboxCall(method, strings.Replace(path, "ID", id, 1), body,
				map[string]string{"X-API-Key": "sk-mine"})
			if want := `{"code":404,"message":"Sandbox '` + id + `' not found."}`; status != http.StatusNotFound ||
				text != want {
				t.Errorf("%s: got %d %s", route, status, text)
			}
		}
	}
	if _, text := h.sandboxCall("GET", "/v2/sandboxes", "",
		map[string]string{"X-API-Key": "sk-mine"}); strings.Contains(text, theirs.ID) || !strings.Contains(text,
		mine.ID) {
		t.Errorf("the list is %s", text)
	}
	// Programs in containers get this header from other routes, so it must not have a key there.
	for _, path := range []string{"/v1/containers", "/v1/containers/cntr_" + mine.ID + "/ports/80/"} {
		if status, text := h.sandboxCall("GET", path, "",
			map[string]string{"X-API-Key": "sk-mine"}); status != http.StatusUnauthorized {
			t.Errorf("%s with X-API-Key: got %d %s", path, status, text)
		}
	}
	if status, text := h.sandboxCall("GET", "/v2/sandboxes", "",
		map[string]string{"X-API-Key": "sk-wrong"}); status != http.StatusUnauthorized || !strings.HasPrefix(text,
		`{"code":401,`) {
		t.Errorf("with a wrong key: got %d %s", status, text)
	}
}

// A request of the data plane needs the token of its own sandbox, or a signature with it.
func TestSandboxTokens(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s, other := h.newSandbox("sk-mine", `{"templateID":"base"}`), h.newSandbox("sk-mine", `{"templateID":"base"}`)
	const list = "/process.Process/List"
	for name, tt := range map[string]struct {
		path, id, port, token string
		status                int
	}{
		"its token":               {list, s.ID, "49983", s.Token, 200},
		"no token":                {list, s.ID, "49983", "", 401},
		"another sandbox's token": {list, s.ID, "49983", other.Token, 401},
		"an API key":              {list, s.ID, "49983", "sk-mine", 401},
		"no sandbox":              {list, strings.Repeat("0", len(s.ID)), "49983", s.Token, 502},
		"a container's id":        {list, "cntr_" + s.ID, "49983", s.Token, 502},
		"a path of the guest":     {"/berth.guest.v1.Guest/Info", s.ID, "49983", s.Token, 404},
		"a path upwards":          {"/process.Process/..%2f..%2finit", s.ID, "49983", s.Token, 404},
		"envd's own path":         {"/init", s.ID, "49983", s.Token, 404},
		"another port":            {list, s.ID, "1", s.Token, 502},
		"a file without token":    {"/files?path=/etc/passwd", s.ID, "49983", "", 401},
		"a wrong signature":       {"/files?path=/etc/passwd&signature=v1_x", "", "", "", 401},
	} {
		method := "POST"
		if strings.HasPrefix(tt.path, "/files") {
			method = "GET"
		}
		header := map[string]string{"X-Access-Token": tt.token, "E2b-Sandbox-Id": tt.id, "E2b-Sandbox-Port": tt.port}
		for name, value := range header {
			if value == "" {
				delete(header, name)
			}
		}
		if status, text := h.sandboxCall(method, tt.path, "{}", header); status != tt.status {
			t.Errorf("%s: got %d %s, want %d", name, status, text, tt.status)
		}
	}
	if status, _ := h.sandboxCall("DELETE", "/v1/containers/cntr_"+s.ID, "",
		map[string]string{"Authorization": "Bearer sk-mine"}); status != 200 {
		t.Errorf("deleting its container: got %d", status)
	}
	for path, want := range map[string]int{"/health": 502, list: 502} {
		if status, text := h.sandboxCall("POST", path, "{}", map[string]string{"X-Access-Token": s.Token,
			"E2b-Sandbox-Id": s.ID}); status != want {
			t.Errorf("%s after its end: got %d %s", path, status, text)
		}
	}
}

// The signature of a URL covers all that the request chooses: neither another directory nor another user has an effect.
func TestSandboxSignedURL(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	dir := t.TempDir()
	name := filepath.Base(filepath.Dir(dir)) + "-secret.txt"
	check(t, os.WriteFile(filepath.Join(dir, name), []byte("secret"), 0o600))
	signed := func(path string) string {
		sum := sha256.Sum256([]byte(path + ":read::" + s.Token))
		return "/files?" + url.Values{"path": {path},
			"signature": {"v1_" + base64.RawStdEncoding.EncodeToString(sum[:])}}.Encode()
	}
	if status, text := h.sandboxCall("GET", signed(name)+"&root="+url.QueryEscape(dir), "", nil); status != 404 {
		t.Errorf("with a root: got %d %s", status, text)
	}
	for _, header := range []map[string]string{nil, {"Authorization": "Basic bm8tc3VjaC11c2VyOg=="},
		{"Berth-User": "no-such-user"}, {"Berth-Root": "/etc"}} {
		if status, text := h.sandboxCall("GET", signed(filepath.Join(dir, name)), "", header); status != 200 ||
			text != "secret" {
			t.Errorf("with %v: got %d %s", header, status, text)
		}
	}
}

// Refusals of signed URLs have the words of E2B's envd, which its clients compare.
func TestSandboxSignedURLRefused(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	sum := sha256.Sum256([]byte("a:read::" + s.Token + ":1"))
	expired := "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
	for query, want := range map[string]string{
		"path=a": "missing signature query parameter", "path=a&signature=v1_x": "invalid signature",
		"path=a&signature_expiration=1&signature=" + url.QueryEscape(expired): "signature is already expired",
	} {
		status, text := h.sandboxCall("GET", "/files?"+query, "", map[string]string{"E2b-Sandbox-Id": s.ID})
		if status != http.StatusUnauthorized || text != `{"code":401,"message":"`+want+`"}` {
			t.Errorf("%s: got %d %s, want %s", query, status, text, want)
		}
	}
}

// A connect sets what happens at the timeout, as in former SDKs.
func TestSandboxConnectAutoPause(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	key := map[string]string{"X-API-Key": "sk-mine"}
	for body, want := range map[string]string{`{"autoPause":true}`: "pause", `{"autoPause":false}`: "kill"} {
		if status, text := h.sandboxCall("POST", "/sandboxes/"+s.ID+"/connect", body, key); status != http.StatusOK {
			t.Fatalf("%s: got %d %s", body, status, text)
		}
		if _, text := h.sandboxCall("GET", "/sandboxes/"+s.ID, "", key); !strings.Contains(text,
			`"onTimeout":"`+want+`"`) {
			t.Errorf("%s: got %s, want %s", body, text, want)
		}
	}
	if status, _ := h.sandboxCall("POST", "/sandboxes/"+s.ID+"/connect", `{"memory":false}`,
		key); status != http.StatusBadRequest {
		t.Errorf("without memory: got %d", status)
	}
}

// What this server does not serve is refused and not ignored.
func TestSandboxRequests(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	for body, want := range map[string]string{
		`{}`:                                                  "Missing required parameter: 'templateID'.",
		`{"templateID":"base","surprise":1}`:                  "Unknown parameter: 'surprise'.",
		`{"templateID":"base","timeout":-1}`:                  "'timeout'",
		`{"templateID":"base","metadata":{"a":1}}`:            "'metadata.a'",
		`{"templateID":"base","network":{"rules":{"*":[]}}}`:  "'network.rules.*'",
		`{"templateID":"base","mcp":"x"}`:                     "'mcp'",
		`{"templateID":"base","volumeMounts":[{"name":"a"}]}`: "'volumeMounts[0].path'",
		`{"templateID":"base","allow_internet_access":false,"envVars":{"A=B\u0000":"x"}}`: "environment variable",
	} {
		status, text := h.sandboxCall("POST", "/v2/sandboxes", body, map[string]string{"X-API-Key": "sk-mine"})
		if status != http.StatusBadRequest || !strings.HasPrefix(text, `{"code":400,"message":`) ||
			!strings.Contains(text, want) {
			t.Errorf("%s: got %d %s, want %q", body, status, text, want)
		}
	}
	for query, want := range map[string]int{"limit=0": 400, "limit=101": 400, "state=dead": 400, "metadata=%25zz": 400,
		"nextToken=cntr_x": 400, "limit=1&state=running,paused": 200} {
		if status, text := h.sandboxCall("GET", "/v2/sandboxes?"+query, "",
			map[string]string{"X-API-Key": "sk-mine"}); status != want {
			t.Errorf("%s: got %d %s", query, status, text)
		}
	}
}

// A sandbox ends at its deadline, also if that passes while no server runs.
func TestSandboxDeadline(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	var opts api.Options
	h := newHouse(t, func(o *api.Options) { withSandboxes(t, &stop)(o); opts = *o })
	h.key("sk-mine", "proj_mine")
	key := map[string]string{"X-API-Key": "sk-mine"}
	ended := func(s e2bSandbox) {
		t.Helper()
		for {
			if status, _ := h.sandboxCall("GET", "/v1/containers/cntr_"+s.ID, "",
				map[string]string{"Authorization": "Bearer sk-mine"}); status == http.StatusNotFound {
				return
			}
			if t.Context().Err() != nil {
				t.Fatal("the container has not ended")
			}
		}
	}
	ended(h.newSandbox("sk-mine", `{"templateID":"base","timeout":0}`))
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	if status, text := h.sandboxCall("POST", "/sandboxes/"+s.ID+"/timeout", `{"timeout":0}`,
		key); status != http.StatusNoContent {
		t.Errorf("got %d %s", status, text)
	}
	ended(s)

	s = h.newSandbox("sk-mine", `{"templateID":"base","timeout":3600}`)
	stop()
	if status, text := h.sandboxCall("POST", "/sandboxes/"+s.ID+"/timeout", `{"timeout":0}`,
		key); status != http.StatusNoContent {
		t.Errorf("got %d %s", status, text)
	}
	// Nothing has ended it yet, but its clients see one state.
	for _, path := range []string{"/sandboxes/" + s.ID, "/sandboxes/" + s.ID + "/metrics"} {
		if status, text := h.sandboxCall("GET", path, "", key); status != http.StatusNotFound {
			t.Errorf("GET %s after the deadline: got %d %s", path, status, text)
		}
	}
	if status, text := h.sandboxCall("GET", "/v2/sandboxes", "", key); status != http.StatusOK || strings.Contains(text,
		s.ID) {
		t.Errorf("the list after the deadline: got %d %s", status, text)
	}
	if status, text := h.sandboxCall("POST", "/sandboxes/"+s.ID+"/timeout", `{"timeout":60}`,
		key); status != http.StatusNotFound {
		t.Errorf("another deadline after the deadline: got %d %s", status, text)
	}
	withSandboxes(t, &stop)(&opts) // the next server
	ended(s)
}

// Pages of a list are in order and complete.
func TestSandboxPages(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	var want []string
	for range 3 {
		want = append(want, h.newSandbox("sk-mine", `{"templateID":"base","metadata":{"a":"b c"}}`).ID)
	}
	h.newSandbox("sk-mine", `{"templateID":"base"}`)
	var got []string
	for next := ""; ; {
		req, err := http.NewRequestWithContext(t.Context(), "GET",
			h.url+"/v2/sandboxes?limit=2&order=asc&metadata=a%3Db%252520c&nextToken="+next, nil)
		check(t, err)
		req.Header.Set("X-API-Key", "sk-mine")
		resp, err := http.DefaultClient.Do(req)
		check(t, err)
		var page []e2bSandbox
		err = json.NewDecoder(resp.Body).Decode(&page)
		resp.Body.Close()
		check(t, err)
		for _, s := range page {
			got = append(got, s.ID)
		}
		if next = resp.Header.Get("X-Next-Token"); next == "" {
			break
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Envd's own reports are those of the one sandbox whose token the request has.
func TestSandboxReports(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s, other := h.newSandbox("sk-mine", `{"templateID":"base","envVars":{"A":"1=2","B":""}}`), h.newSandbox("sk-mine",
		`{"templateID":"base"}`)
	get := func(want int, path, token string) string {
		t.Helper()
		status, text := h.sandboxCall("GET", path, "", map[string]string{"E2b-Sandbox-Id": s.ID,
			"X-Access-Token": token})
		if status != want {
			t.Errorf("%s: got %d %s, want %d", path, status, text, want)
		}
		return text
	}
	if text := get(200, "/envs", s.Token); text != `{"A":"1=2","B":""}` {
		t.Errorf("the environment is %s", text)
	}
	var m map[string]float64
	check(t, json.Unmarshal([]byte(get(200, "/metrics", s.Token)), &m))
	if m["cpu_count"] != 2 || m["ts"] == 0 || len(m) != 10 {
		t.Errorf("the metrics are %v", m)
	}
	for _, path := range []string{"/envs", "/metrics"} {
		get(401, path, other.Token)
		get(401, path, "sk-mine")
	}
}
