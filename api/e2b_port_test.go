package api_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/berth-run/berth/api"
)

// echoServer returns the port of a server that shows what it got.
func echoServer(t *testing.T) string {
	return served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			conn, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			defer conn.CloseNow()
			kind, text, err := conn.Read(r.Context())
			if err == nil {
				_ = conn.Write(r.Context(), kind, append([]byte("echo "), text...))
			}
			_ = conn.Close(websocket.StatusNormalClosure, "")
			return
		}
		if to := r.URL.Query().Get("to"); to != "" {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Strict-Transport-Security", "max-age=1")
		fmt.Fprintf(w, "%s %s host=%s", r.Method, r.RequestURI, r.Host)
		for _, name := range []string{"Authorization", "Origin", "X-Access-Token", "X-Api-Key", "E2b-Sandbox-Id",
			"E2b-Traffic-Access-Token", "X-Forwarded-For", "Cookie"} {
			if v := r.Header.Get(name); v != "" {
				fmt.Fprintf(w, " %s=%s", strings.ToLower(name), v)
			}
		}
	})
}

// A sandbox is reached at each of its ports by a host name and by headers.
func TestSandboxPorts(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, func(o *api.Options) { o.Preview.Domain = "sandboxes.example"; withSandboxes(t, &stop)(o) })
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	if !strings.HasPrefix(s.Domain, "sandboxes.example:") {
		t.Errorf("the domain is %q, want the server's with its port", s.Domain)
	}
	port := echoServer(t)
	host := port + "-" + s.ID + "." + s.Domain
	for name, tt := range map[string]struct {
		host   string
		header []string
		want   string
	}{
		"by host": {host, nil, "GET /a%2Fb?q host=localhost:" + port},
		"by host in capitals": {strings.ToUpper(port + "-" + s.ID + ".sandboxes.example."), nil,
			"GET /a%2Fb?q host=localhost:" + port},
		"by headers": {"", []string{"E2b-Sandbox-Id", s.ID, "E2b-Sandbox-Port", port},
			"GET /a%2Fb?q host=localhost:" + port},
		"a host beats headers": {host, []string{"E2b-Sandbox-Id", strings.Repeat("0", 48), "E2b-Sandbox-Port", "1"},
			"GET /a%2Fb?q host=localhost:" + port},
		"its own authorization": {host, []string{"Authorization", "Bearer theirs", "X-Api-Key", "theirs"},
			"GET /a%2Fb?q host=localhost:" + port + " authorization=Bearer theirs x-api-key=theirs"},
		"no secret of Berth": {host, []string{"Authorization", "Bearer sk-mine", "X-Api-Key", "sk-mine",
			"X-Access-Token", s.Token, "E2b-Traffic-Access-Token", "x", "X-Forwarded-For", "1.2.3.4"},
			"GET /a%2Fb?q host=localhost:" + port},
		"its own page": {host, []string{"Origin", "https://" + host}, "GET /a%2Fb?q host=localhost:" + port +
			" origin=http://localhost:" + port},
		"another's page": {host, []string{"Origin", "https://shop.example"}, "GET /a%2Fb?q host=localhost:" + port +
			" origin=https://shop.example"},
	} {
		resp, text := visitHost(t, "GET", h.url, tt.host, "/a%2Fb?q", tt.header...)
		if resp.StatusCode != 200 || text != tt.want {
			t.Errorf("%s: got %d %q, want %q", name, resp.StatusCode, text, tt.want)
		}
		if resp.Header.Get("Access-Control-Allow-Origin") != "*" ||
			(resp.Header.Get("Content-Security-Policy") != "") != (tt.host == "") ||
			resp.Header.Get("Strict-Transport-Security") != "" {
			t.Errorf("%s: the headers are %v", name, resp.Header)
		}
	}
	for name, header := range map[string]http.Header{"host": {"Host": {host}},
		"headers": {"E2b-Sandbox-Id": {s.ID}, "E2b-Sandbox-Port": {port}}} {
		conn, _, err := websocket.Dial(t.Context(), h.url+"/socket", &websocket.DialOptions{Host: header.Get("Host"),
			HTTPHeader: header})
		if err != nil {
			t.Errorf("a WebSocket by %s: %v", name, err)
			continue
		}
		check(t, conn.Write(t.Context(), websocket.MessageText, []byte("hello")))
		if _, text, err := conn.Read(t.Context()); err != nil || string(text) != "echo hello" {
			t.Errorf("a WebSocket by %s: got %q %v", name, text, err)
		}
		conn.CloseNow()
	}
	// A redirect of a client that sends a secret stays on the port.
	for to, want := range map[string]int{"/next": 302, "https://example.com/": 302, "http://127.0.0.1:22/": 502} {
		if resp, _ := visitHost(t, "GET", h.url, host, "/?to="+to); resp.StatusCode != want {
			t.Errorf("a redirect to %s: got %d, want %d", to, resp.StatusCode, want)
		}
	}
	if resp, text := visitHost(t, "GET", h.url, host, "/?to=https://example.com/", "X-Access-Token",
		s.Token); resp.StatusCode != 502 || !strings.HasPrefix(text, `{"code":502,`) {
		t.Errorf("a redirect with a secret: got %d %s", resp.StatusCode, text)
	}
	// envd has a host too, and its own paths and token.
	for path, want := range map[string]int{"/health": 204, "/files?path=/etc/hostname": 401, "/init": 404} {
		if resp, text := visitHost(t, "GET", h.url, "49983-"+s.ID+"."+s.Domain, path); resp.StatusCode != want {
			t.Errorf("envd's %s: got %d %s, want %d", path, resp.StatusCode, text, want)
		}
	}
}

// Requests for what does not exist, or with other hosts, reach no sandbox.
func TestSandboxPortsRefuse(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, func(o *api.Options) { o.Preview.Domain = "sandboxes.example"; withSandboxes(t, &stop)(o) })
	h.key("sk-mine", "proj_mine")
	h.key("sk-theirs", "proj_theirs")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	port := echoServer(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	closed.Close()
	none := strings.Repeat("0", 48)
	plain := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id() // not a sandbox
	for name, tt := range map[string]struct {
		host   string
		header []string
		status int
		text   string
	}{
		"a guessed id": {port + "-" + none + ".sandboxes.example", nil, 502, `{"sandboxId":"` + none +
			`","message":"The sandbox was not found","code":502}`},
		"an id of E2B's form": {port + "-i4wzcbpgs2a1pr3t8f0k-6532622b.sandboxes.example", nil, 502,
			`{"sandboxId":"i4wzcbpgs2a1pr3t8f0k","message":"The sandbox was not found","code":502}`},
		"a guessed id in the header": {"", []string{"E2b-Sandbox-Id", none, "E2b-Sandbox-Port", port}, 502,
			`{"sandboxId":"` + none + `","message":"The sandbox was not found","code":502}`},
		"a container, not a sandbox": {port + "-" + strings.TrimPrefix(plain, "cntr_") + ".sandboxes.example", nil,
			502, ""},
		"a closed port": {portOf(closed) + "-" + s.ID + ".sandboxes.example", nil, 502, `{"sandboxId":"` +
			s.ID + `","message":"The sandbox is running but port is not open","port":` + portOf(closed) +
			`,"code":502}`},
		"port 0":                      {"0-" + s.ID + ".sandboxes.example", nil, 400, ""},
		"port 65536":                  {"65536-" + s.ID + ".sandboxes.example", nil, 400, ""},
		"a port with a zero":          {"0" + port + "-" + s.ID + ".sandboxes.example", nil, 400, ""},
		"a port that is no number":    {"", []string{"E2b-Sandbox-Id", s.ID, "E2b-Sandbox-Port", "+80"}, 400, ""},
		"another domain":              {port + "-" + s.ID + ".evil.example", nil, 404, ""},
		"the domain's end":            {port + "-" + s.ID + ".evilsandboxes.example", nil, 404, ""},
		"a name below":                {"x." + port + "-" + s.ID + ".sandboxes.example", nil, 404, ""},
		"a name before":               {port + "-" + s.ID + ".x.sandboxes.example", nil, 404, ""},
		"localhost beside the domain": {port + "-" + s.ID + ".localhost", nil, 404, ""},
		"a forwarded host": {"", []string{"X-Forwarded-Host", port + "-" + s.ID + ".sandboxes.example"}, 404,
			""},
	} {
		resp, text := visitHost(t, "GET", h.url, tt.host, "/nothing-here", append(tt.header, "Authorization",
			"Bearer sk-theirs")...)
		if resp.StatusCode != tt.status || tt.text != "" && text != tt.text {
			t.Errorf("%s: got %d %s, want %d %s", name, resp.StatusCode, text, tt.status, tt.text)
		}
		if strings.Contains(text, "host=") {
			t.Errorf("%s: the request reached a server: %s", name, text)
		}
	}
}

// A browser gets a page in place of the JSON of an error.
func TestSandboxPortPages(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, func(o *api.Options) { o.Preview.Domain = "sandboxes.example"; withSandboxes(t, &stop)(o) })
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	private := h.newSandbox("sk-mine", `{"templateID":"base","network":{"allowPublicTraffic":false}}`)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	closed.Close()
	for host, want := range map[string]struct {
		status int
		text   string
	}{
		"80-i4wzcbpgs2a1pr3t8f0k":   {502, "The sandbox was not found"},
		portOf(closed) + "-" + s.ID: {502, "port is not open"},
		"80-" + private.ID:          {403, "traffic access token"},
		"65536-" + s.ID:             {400, "Invalid port"},
		"49999-" + s.ID:             {401, "token of the sandbox"},
	} {
		resp, text := visitHost(t, "GET", h.url, host+".sandboxes.example", "/",
			"Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
		if resp.StatusCode != want.status || !strings.HasPrefix(text, "<!doctype html>") ||
			!strings.Contains(text, want.text) || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" ||
			!strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: got %d %v %s", host, resp.StatusCode, resp.Header, text)
		}
		if resp, text := visitHost(t, "GET", h.url, host+".sandboxes.example", "/", "Accept",
			"*/*"); resp.StatusCode != want.status || !strings.HasPrefix(text, "{") ||
			resp.Header.Get("Content-Type") != "application/json; charset=utf-8" {
			t.Errorf("%s: a program got %d %s", host, resp.StatusCode, text)
		}
	}
}

// An answer that headers have chosen is at an address of the API: browsers neither keep it nor run it, and no page may
// ask for it.
func TestSandboxAnswerByHeader(t *testing.T) {
	var stop context.CancelFunc
	h := newHouse(t, func(o *api.Options) {
		o.Exchange.Origins = []string{"*"}
		withSandboxes(t, &stop)(o)
	})
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	port := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Cache-Control", "max-age=86400")
		w.Header().Set("Content-Security-Policy", "default-src 'self'")
		w.Header().Set("Vary", "Accept")
		fmt.Fprint(w, "<script>alert(1)</script>")
	})
	for _, at := range []string{port, "1", "49983", "49999", "none"} {
		resp, text := visitHost(t, "GET", h.url, "", "/console/", "E2b-Sandbox-Id", s.ID, "E2b-Sandbox-Port", at)
		policy, vary := resp.Header.Values("Content-Security-Policy"), resp.Header.Values("Vary")
		if resp.Header.Get("Cache-Control") != "no-store" || !slices.Contains(policy, "sandbox") ||
			!slices.Contains(vary, "E2b-Sandbox-Id, E2b-Sandbox-Port") {
			t.Errorf("port %s: got %d %.40s with %v", at, resp.StatusCode, text, resp.Header)
		}
		if at == port && (resp.StatusCode != 200 || !slices.Contains(policy, "default-src 'self'") ||
			!slices.Contains(vary, "Accept")) {
			t.Errorf("the server's own headers are gone: got %d with %v", resp.StatusCode, resp.Header)
		}
	}
	if resp, _ := visitHost(t, "GET", h.url, port+"-"+s.ID+".localhost",
		"/"); !strings.Contains(resp.Header.Get("Cache-Control"), "max-age=86400") {
		t.Errorf("at the port's own host: got %v", resp.Header)
	}
	resp, _ := visitHost(t, "OPTIONS", h.url, "", "/", "Origin", "http://app.example", "Access-Control-Request-Method",
		"GET",
		"Access-Control-Request-Headers", "authorization, e2b-sandbox-id,E2B-Sandbox-Port,x-app")
	if got := resp.Header.Get("Access-Control-Allow-Headers"); got != "authorization,x-app" {
		t.Errorf("a page may send %q", got)
	}
}

// Ports that are not public need the traffic token of their own sandbox.
func TestSandboxTrafficToken(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	s := h.newSandbox("sk-mine",
		`{"templateID":"base","network":{"allowPublicTraffic":false,"maskRequestHost":"app.test:${PORT}"}}`)
	other := h.newSandbox("sk-mine", `{"templateID":"base","network":{"allowPublicTraffic":false}}`)
	public := h.newSandbox("sk-mine", `{"templateID":"base"}`)
	if s.Traffic == "" || s.Traffic == other.Traffic || s.Traffic == s.Token || public.Traffic == "" ||
		!strings.HasPrefix(s.Domain, "localhost:") {
		t.Fatalf("got %+v, %+v and %+v", s, other, public)
	}
	port := echoServer(t)
	host := port + "-" + s.ID + ".localhost"
	for name, tt := range map[string]struct {
		token string
		want  int
	}{"its token": {s.Traffic, 200}, "none": {"", 403}, "another sandbox's": {other.Traffic, 403},
		"its access token": {s.Token, 403}, "an API key": {"sk-mine", 403},
		"a forged one": {s.Traffic[:len(s.Traffic)-1] + "x", 403}} {
		resp, text := visitHost(t, "GET", h.url, host, "/", "E2b-Traffic-Access-Token", tt.token, "X-Access-Token",
			s.Token)
		if resp.StatusCode != tt.want {
			t.Errorf("%s: got %d %s, want %d", name, resp.StatusCode, text, tt.want)
		}
		if tt.want == 200 && text != "GET / host=app.test:"+port {
			t.Errorf("%s: the server got %q", name, text)
		}
	}
	if resp, text := visitHost(t, "GET", h.url, "49983-"+s.ID+".localhost", "/health"); resp.StatusCode != 204 {
		t.Errorf("envd needs no traffic token: got %d %s", resp.StatusCode, text)
	}
	// A second server knows the settings from the store.
	key := map[string]string{"X-API-Key": "sk-mine"}
	if status, text := h.sandboxCall("POST", "/v2/sandboxes/"+s.ID+"/connect", "", key); status != 200 ||
		!strings.Contains(text, s.Traffic) {
		t.Errorf("connect: got %d %s", status, text)
	}
	if status, text := h.sandboxCall("GET", "/sandboxes/"+s.ID, "", key); status != 200 || strings.Contains(text,
		s.Traffic) {
		t.Errorf("info: got %d %s", status, text)
	}
}

// A server with a certificate of its own is reached too, if the sandbox names its port.
func TestSandboxHTTPSPort(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	h := newHouse(t, withSandboxes(t, &stop))
	h.key("sk-mine", "proj_mine")
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "secret ", r.TLS != nil)
	}))
	t.Cleanup(srv.Close)
	port := portOf(srv.Listener)
	s := h.newSandbox("sk-mine", `{"templateID":"base","network":{"httpsPorts":[`+port+`]}}`)
	if resp, text := visitHost(t, "GET", h.url, port+"-"+s.ID+".localhost", "/"); resp.StatusCode != 200 ||
		text != "secret true" {
		t.Errorf("got %d %s", resp.StatusCode, text)
	}
}
