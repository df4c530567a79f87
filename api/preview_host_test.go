package api_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-run/berth/api"
)

// visitHost requests a path under a host name, like a program whose resolver knows the name.
func visitHost(t *testing.T, method, server, host, path string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, server+path, nil)
	check(t, err)
	req.Host = host
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	check(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	check(t, err)
	return resp, string(text)
}

// A hostHouse has a container with a server, and a link to it under its own host.
type hostHouse struct {
	*house
	clock    *clock
	id, port string
	link     *url.URL // of its host, with the token
	token    string
	seen     chan http.Header
}

func newHostHouse(t *testing.T) *hostHouse {
	t.Helper()
	h := &hostHouse{clock: &clock{now: time.Now()}, seen: make(chan http.Header, 100)}
	h.house = newHouse(t, func(o *api.Options) { o.Preview.Domain, o.Now = "preview.example", h.clock.Now })
	h.key("sk-secret", "proj_1")
	h.id = h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	h.port = served(t, func(w http.ResponseWriter, r *http.Request) {
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
		h.seen <- r.Header.Clone()
		switch r.URL.Path {
		case "/own":
			w.Header().Set("Location", "http://localhost:"+portOfHost(r.Host)+"/there")
			w.WriteHeader(http.StatusFound)
		case "/away":
			w.Header().Set("Location", "http://localhost:"+portOfHost(r.Host)+"//127.0.0.1:22/")
			w.WriteHeader(http.StatusFound)
		case "/public":
			w.Header().Set("Location", "https://example.com/")
			w.WriteHeader(http.StatusFound)
		}
		http.SetCookie(w, &http.Cookie{Name: "s", Value: "1", Path: "/", Domain: "preview.example"})
		http.SetCookie(w, &http.Cookie{Name: "berth_preview", Value: "mine", Path: "/"})
		w.Header().Set("Content-Security-Policy", "default-src 'self'")
		fmt.Fprint(w, "page "+r.RequestURI)
	})
	link := h.call(200, "POST", "/v1/containers/"+h.id+"/ports/"+h.port,
		`{"expires_after":{"anchor":"created_at","seconds":60}}`)
	text, _ := link["host_url"].(string)
	var err error
	h.link, err = url.Parse(text)
	check(t, err)
	h.token = h.link.Query().Get("berth_preview")
	if want := h.port + "-" + strings.Replace(h.id, "_", "-", 1) + ".preview.example"; h.link.Hostname() != want ||
		h.link.Scheme != "http" || h.token == "" {
		t.Fatalf("got %s, want a token and the host %s", text, want)
	}
	return h
}

func portOfHost(host string) string { return host[strings.LastIndexByte(host, ':')+1:] }

// A key, a link, or the cookie of a used link gives access. The sandbox gets none of them.
func TestPreviewHost(t *testing.T) {
	t.Parallel()
	h := newHostHouse(t)
	at := h.link.Host
	get := func(path string, header ...string) (*http.Response, string) {
		t.Helper()
		return visitHost(t, "GET", h.url, at, path, header...)
	}
	for _, header := range [][]string{{}, {"Authorization", "Bearer sk-wrong"}, {"Cookie", "berth_preview=x"}} {
		if resp, text := get("/", header...); resp.StatusCode != 401 || strings.Contains(text, "page") {
			t.Errorf("%v: got %d %s, want 401", header, resp.StatusCode, text)
		}
	}
	h.key("sk-other", "proj_2")
	if resp, _ := get("/", "Authorization", "Bearer sk-other"); resp.StatusCode != 404 {
		t.Errorf("another project's key: got %d, want 404", resp.StatusCode)
	}
	resp, text := get("/a%2Fb?q", "Authorization", "Bearer sk-secret", "Cookie", "house=sk-secret")
	if flat := fmt.Sprint(<-h.seen); resp.StatusCode != 200 || text != "page /a%2Fb?q" || strings.Contains(flat,
		"sk-secret") {
		t.Errorf("with the key: got %d %s; the sandbox got %s", resp.StatusCode, text, flat)
	}

	resp, _ = get("/x?a=1&berth_preview="+h.token, "Accept", "text/html")
	cookie := resp.Header.Get("Set-Cookie")
	if resp.StatusCode != 303 || resp.Header.Get("Location") != "//"+at+"/x?a=1" || len(h.seen) > 0 {
		t.Errorf("the first visit: got %d to %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	for _, want := range []string{"berth_preview=" + h.token, "Path=/", "Max-Age=60", "HttpOnly", "SameSite=Lax"} {
		if !strings.Contains(cookie, want) || strings.Contains(cookie, "Domain") {
			t.Errorf("got the cookie %q, want %s", cookie, want)
		}
	}
	permission, _, _ := strings.Cut(cookie, ";")
	resp, text = get("/x?a=1", "Cookie", permission+"; house=other", "Authorization", "Bearer of-the-page")
	seen := <-h.seen
	if resp.StatusCode != 200 || text != "page /x?a=1" || seen.Get("Authorization") != "Bearer of-the-page" {
		t.Errorf("with the cookie: got %d %s, and the page's own authorization %q", resp.StatusCode, text,
			seen.Get("Authorization"))
	}
	if flat := fmt.Sprint(seen); strings.Contains(flat, h.token) || strings.Contains(flat, "house") {
		t.Errorf("the sandbox got %s", flat)
	}
	if flat := strings.Join(resp.Header.Values("Set-Cookie"), "\n"); strings.Contains(flat, "Domain") ||
		strings.Contains(flat, "\nberth_preview=") || strings.HasPrefix(flat, "berth_preview=") {
		t.Errorf("the sandbox has set %s", flat)
	}
	if got := resp.Header.Get("Content-Security-Policy"); got != "default-src 'self'" ||
		resp.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" ||
		resp.Header.Get("X-Frame-Options") != "SAMEORIGIN" {
		t.Errorf("got %v", resp.Header)
	}
	get("/x", "Cookie", permission, "Authorization", "Bearer sk-secret")
	if got := (<-h.seen).Get("Authorization"); got != "" {
		t.Errorf("a key with the cookie: the sandbox got %s", got)
	}
	// a program's
	if resp, text := get("/x?berth_preview="+h.token, "Accept", "*/*"); resp.StatusCode != 200 || text != "page /x" {
		t.Errorf("got %d %s", resp.StatusCode, text)
	}
	if resp, _ := get("/own", "Cookie", permission); resp.Header.Get("Location") != "/there" {
		t.Errorf("got to %q, want /there", resp.Header.Get("Location"))
	}
	if resp, _ := get("/away", "Cookie", permission); resp.StatusCode != 502 {
		t.Errorf("a way to the reader's own machine: got %d to %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	for _, c := range []struct {
		status int
		header []string
	}{
		{302, []string{"Cookie", permission}},
		{302, []string{"Cookie", permission, "Authorization", "Bearer of-the-page"}},
		{502, []string{"Cookie", permission, "Authorization", "Bearer sk-secret"}},
		{502, []string{"Authorization", "Bearer sk-secret"}},
	} {
		if resp, text := get("/public", c.header...); resp.StatusCode != c.status {
			t.Errorf("a redirect to a public host with %q: got %d %s, want %d", c.header, resp.StatusCode, text,
				c.status)
		}
	}

	resp, _ = get("/?berth_preview="+h.token, "Accept", "text/html", "X-Forwarded-Proto", "https")
	if c := resp.Header.Get("Set-Cookie"); !strings.HasPrefix(c, "__Host-berth_preview=") ||
		!strings.Contains(c, "; Secure") {
		t.Errorf("over HTTPS: got the cookie %q", c)
	}
}

// A cookie gives access to its own host only, and only to pages of that host, until its link
// expires.
func TestPreviewHostBounds(t *testing.T) {
	t.Parallel()
	h := newHostHouse(t)
	cookie := "berth_preview=" + h.token
	other := served(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "other") })
	name := strings.TrimPrefix(h.link.Host, h.port)
	for what, got := range map[string]func() (*http.Response, string){
		"another port": func() (*http.Response, string) {
			return visitHost(t, "GET", h.url, other+name, "/", "Cookie", cookie)
		},
		"its token there": func() (*http.Response, string) {
			return visitHost(t, "GET", h.url, other+name, "/?berth_preview="+h.token)
		},
		"a wrong token": func() (*http.Response, string) {
			return visitHost(t, "GET", h.url, h.link.Host, "/?berth_preview=x", "Cookie", cookie)
		},
		"the API": func() (*http.Response, string) {
			return visitHost(t, "GET", h.url, "", "/v1/containers", "Cookie", cookie)
		},
	} {
		if resp, text := got(); resp.StatusCode != 401 {
			t.Errorf("%s: got %d %s, want 401", what, resp.StatusCode, text)
		}
	}
	for what, header := range map[string][]string{
		"a WebSocket of another page": {"Origin", "http://" + other + name},
		"a script of another page": {"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest",
			"script"},
		"a frame of another page": {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
			"iframe"},
	} {
		if resp, text := visitHost(t, "GET", h.url, h.link.Host, "/", append(header, "Cookie",
			cookie)...); resp.StatusCode != 403 {
			t.Errorf("%s: got %d %s, want 403", what, resp.StatusCode, text)
		}
	}
	for _, host := range []string{"x.preview.example", "1-cntr-1.preview.example", "api." + h.link.Host} {
		if resp, text := visitHost(t, "GET", h.url, host, "/v1/models", "Authorization",
			"Bearer sk-secret"); resp.StatusCode != 404 {
			t.Errorf("%s: got %d %s, want 404 and nothing of the API", host, resp.StatusCode, text)
		}
	}
	if resp, _ := visitHost(t, "GET", h.url, h.link.Host, "/healthz"); resp.StatusCode != 401 {
		t.Errorf("the API's own paths at the host: got %d, want 401", resp.StatusCode)
	}
	h.clock.add(time.Minute)
	if resp, _ := visitHost(t, "GET", h.url, h.link.Host, "/", "Cookie", cookie); resp.StatusCode != 401 {
		t.Errorf("after its time: got %d, want 401", resp.StatusCode)
	}
}

func TestPreviewHostSocket(t *testing.T) {
	t.Parallel()
	h := newHostHouse(t)
	dial := func(header http.Header) (*websocket.Conn, *http.Response, error) {
		return websocket.Dial(t.Context(), h.url, &websocket.DialOptions{Host: h.link.Host, HTTPHeader: header})
	}
	cookie := "berth_preview=" + h.token
	for what, header := range map[string]http.Header{
		"key":    {"Authorization": {"Bearer sk-secret"}},
		"cookie": {"Cookie": {cookie}, "Origin": {"http://" + h.link.Host}},
	} {
		conn, _, err := dial(header)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		check(t, conn.Write(context.Background(), websocket.MessageText, []byte(what)))
		if _, got, err := conn.Read(t.Context()); string(got) != "echo "+what {
			t.Errorf("got %q, %v", got, err)
		}
		conn.CloseNow()
	}
	for status, header := range map[int]http.Header{
		401: {},
		403: {"Cookie": {cookie}, "Origin": {"http://1" + h.link.Host}},
	} {
		if _, resp, err := dial(header); err == nil || resp.StatusCode != status {
			t.Errorf("got %v, %v, want %d", resp, err, status)
		}
	}
}

// Without keys, programs and users of this machine can access ports, but pages of other
// hosts cannot.
func TestPreviewHostWithoutKeys(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(o *api.Options) { o.Preview.Domain = "localhost" })
	id := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	port := served(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "page") })
	host := port + "-" + strings.Replace(id, "_", "-", 1) + ".localhost"
	for status, header := range map[int][]string{
		200: {"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"},
		403: {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"},
		401: {"X-Forwarded-For", "192.0.2.1"},
	} {
		if resp, text := visitHost(t, "GET", h.url, host, "/", header...); resp.StatusCode != status {
			t.Errorf("%v: got %d %s, want %d", header, resp.StatusCode, text, status)
		}
	}
	if resp, _ := visitHost(t, "GET", h.url, host, "/", "Origin", "http://evil.example"); resp.StatusCode != 403 {
		t.Errorf("a page of another host: got %d, want 403", resp.StatusCode)
	}
}
