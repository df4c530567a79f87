package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
)

// served is a port on which handler answers, as a sandbox's would; the guests of
// these tests share the loopback.
func served(t *testing.T, handler http.HandlerFunc) (port string) {
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return portOf(srv.Listener)
}

func portOf(l net.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// visit sends a request like a browser: without a key. It does not follow redirects.
func visit(t *testing.T, url string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	check(t, err)
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

func TestPort(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-secret", "proj_1")
	id := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	port := served(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.RequestURI, r.Host, r.Header.Get("Authorization"))
	})
	base := "/v1/containers/" + id + "/ports/" + port
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		resp := h.send(t.Context(), method, base+"/a%2Fb?q", nil)
		text, _ := io.ReadAll(resp.Body)
		if want := method + " /a%2Fb?q localhost:" + port + " "; resp.StatusCode != 200 || string(text) != want {
			t.Errorf("%s: got %d %q, want %q", method, resp.StatusCode, text, want)
		}
		if !strings.HasPrefix(resp.Header.Get("Content-Security-Policy"), "sandbox ") {
			t.Errorf("%s: got no policy", method)
		}
	}
	for path, want := range map[string]int{
		"/v1/containers/" + id + "/ports/0/": 400, "/v1/containers/" + id + "/ports/65536/": 400, "/v1/containers/" +
			id + "/ports/http/": 400,
		"/v1/containers/" + id + "/ports/+80/": 400, "/v1/containers/" + id + "/ports/080/": 400,
		"/v1/containers/cntr_none/ports/80/": 404, base: 426,
	} {
		h.call(want, "GET", path, nil)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	l.Close()
	e := h.call(502, "GET", "/v1/containers/"+id+"/ports/"+portOf(l)+"/", nil)
	if e.at("error", "code") != "port_not_open" {
		t.Errorf("a closed port: got %v, want port_not_open", e)
	}
	h.token = ""
	h.call(401, "GET", base+"/", nil)
}

// A client with a key is not redirected to other hosts by a server in a sandbox.
func TestRedirectOfPort(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-secret", "proj_1")
	id := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	port := served(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	base := "/v1/containers/" + id + "/ports/" + port + "/"
	at := strings.Replace(h.url, "http://127.0.0.1", "", 1)
	for _, to := range []string{"http://127.1" + at + "/v1/containers/" + id, "http://ⓛocalhost" + at + "/v1/files",
		h.url + "/v1/files", "https://example.com/", "/%2e%2e/%2e%2e/%2e%2e/" + id} {
		e := h.call(502, "DELETE", base+"?to="+url.QueryEscape(to), nil)
		if e.at("error", "code") != "redirect_refused" {
			t.Errorf("to %s: got %v, want redirect_refused", to, e)
		}
	}
	resp, _ := visit(t, h.url+base+"?to=/next", "Authorization", "Bearer sk-secret")
	if got := resp.Header.Get("Location"); resp.StatusCode != 307 || got != base+"next" {
		t.Errorf("to the same port: got %d %q", resp.StatusCode, got)
	}
	h.call(200, "GET", "/v1/containers/"+id, nil)
	link := h.call(200, "POST", "/v1/containers/"+id+"/ports/"+port, nil)
	seen, _ := link["url"].(string)
	for status, header := range map[int][]string{307: nil, 502: {"Authorization", "Bearer sk-secret"}} {
		if resp, _ := visit(t, seen+"?to=https://example.com/", header...); resp.StatusCode != status {
			t.Errorf("through a link with %q: got %d, want %d", header, resp.StatusCode, status)
		}
	}
}

// A link gives access to one port until it expires or its key is deleted.
func TestPortLink(t *testing.T) {
	t.Parallel()
	c := &clock{now: time.Now()}
	var log logged
	h := newHouse(t, func(o *api.Options) {
		o.Now = c.Now
		o.Exchange.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	h.key("sk-secret", "proj_1")
	id := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	seen := make(chan http.Header, 10)
	port := served(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		http.SetCookie(w, &http.Cookie{Name: "s", Value: "1", Path: "/"})
		fmt.Fprint(w, "page "+r.RequestURI)
	})
	link := h.call(200, "POST", "/v1/containers/"+id+"/ports/"+port,
		`{"expires_after":{"anchor":"created_at","seconds":60}}`)
	at, _ := link["url"].(string)
	if !strings.HasPrefix(at, h.url+"/preview/") || link.at("expires_at") != float64(c.Now().Unix()+60) ||
		strings.Contains(at, "secret") {
		t.Fatalf("got %v, want a link for a minute", link)
	}
	resp, text := visit(t, at+"x?y", "Authorization", "Bearer sk-secret", "Cookie", "house=sk-secret", "Referer", at)
	header := <-seen
	word := strings.Trim(strings.TrimPrefix(at, h.url+"/preview/"), "/")
	if resp.StatusCode != 200 || text != "page /x?y" {
		t.Errorf("got %d %q, want the page", resp.StatusCode, text)
	}
	if flat := fmt.Sprint(header); strings.Contains(flat, "sk-secret") || strings.Contains(flat, word) {
		t.Errorf("the sandbox got %s", flat)
	}
	if cookie := resp.Header.Get("Set-Cookie"); !strings.Contains(cookie, "Path=/preview/"+word+"/") {
		t.Errorf("got the cookie %q, want one of the link's path", cookie)
	}
	for _, other := range []string{h.url + "/preview/" + word[1:] + "/", h.url + "/preview/x/", h.url + "/preview//"} {
		if resp, _ := visit(t, other); resp.StatusCode != 401 && resp.StatusCode/100 != 3 {
			t.Errorf("%s: got %d, want it refused", other, resp.StatusCode)
		}
	}
	if resp, _ := visit(t, h.url+"/v1/containers/"+id, "Cookie",
		resp.Header.Get("Set-Cookie")); resp.StatusCode != 401 {
		t.Errorf("the API with the link's cookie: got %d, want 401", resp.StatusCode)
	}
	if text := log.String(); strings.Contains(text, word) || strings.Contains(text, "sk-secret") {
		t.Errorf("the log contains secrets:\n%s", text)
	}
	c.add(time.Minute)
	if resp, _ := visit(t, at); resp.StatusCode != 401 {
		t.Errorf("after its time: got %d, want 401", resp.StatusCode)
	}
	link = h.call(200, "POST", "/v1/containers/"+id+"/ports/"+port, nil)
	at, _ = link["url"].(string)
	if resp, _ := visit(t, at); resp.StatusCode != 200 {
		t.Fatalf("a new link: got %d", resp.StatusCode)
	}
	keys, err := h.store.ListKeys(t.Context())
	check(t, err)
	check(t, h.store.DeleteKey(t.Context(), keys[0].ID))
	for _, secret := range []string{"", "sk-other"} {
		if secret != "" {
			h.key(secret, "proj_2")
		}
		if resp, _ := visit(t, at); resp.StatusCode != 401 {
			t.Errorf("without its key: got %d, want 401", resp.StatusCode)
		}
	}
}

func TestPortLinkRequest(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	id := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	for _, body := range []string{`{"expires_after":{"anchor":"created_at","seconds":9}}`,
		`{"expires_after":{"anchor":"created_at","seconds":604801}}`,
		`{"expires_after":{"anchor":"last_active_at","seconds":60}}`, `{"port":1}`, `[]`} {
		h.call(400, "POST", "/v1/containers/"+id+"/ports/80", body)
	}
	// Without keys, pages are refused; but every caller may use a link.
	port := served(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "page") })
	at := h.call(200, "POST", "/v1/containers/"+id+"/ports/"+port, nil)["url"].(string)
	if resp, text := visit(t, at, "Sec-Fetch-Site", "cross-site", "Origin", "null"); resp.StatusCode != 200 ||
		text != "page" {
		t.Errorf("a page's own request: got %d %q, want an answer", resp.StatusCode, text)
	}
	if resp, _ := visit(t, h.url+"/v1/containers/"+id+"/ports/"+port+"/", "Sec-Fetch-Site",
		"cross-site"); resp.StatusCode != 403 {
		t.Errorf("a page's request to the API: got %d, want 403", resp.StatusCode)
	}
	if resp, _ := visit(t, at, "X-Forwarded-For", "203.0.113.7"); resp.StatusCode != 401 {
		t.Errorf("from another machine, without keys: got %d, want 401", resp.StatusCode)
	}
	check(t, h.store.CreateKey(t.Context(), &berth.Key{ID: "key_1", Project: "proj_1", Hash: [32]byte{1}}))
	for tick := time.Tick(10 * time.Millisecond); ; <-tick { // the server knows of the key within a second
		if resp, _ := visit(t, at); resp.StatusCode == 401 {
			break
		}
	}
}

// tunnel opens a TCP connection to a port through the door.
func tunnel(t *testing.T, h *house, path string) (net.Conn, *http.Response) {
	t.Helper()
	u, err := url.Parse(h.url)
	check(t, err)
	conn, err := net.Dial("tcp", u.Host)
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn,
		"GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n", path,
		u.Host, h.token)
	in := bufio.NewReaderSize(conn, 16)
	resp, err := http.ReadResponse(in, nil)
	check(t, err)
	return conn, resp
}

func TestTunnel(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-secret", "proj_1")
	id := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	var servers sync.WaitGroup
	defer servers.Wait()
	servers.Go(func() { // answers after it has read all
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			text, _ := io.ReadAll(conn)
			fmt.Fprintf(conn, "heard %d", len(text))
			conn.Close()
		}
	})
	defer l.Close()
	path := "/v1/containers/" + id + "/ports/" + portOf(l)
	conn, resp := tunnel(t, h, path)
	if resp.StatusCode != 101 {
		t.Fatalf("got %d, want 101", resp.StatusCode)
	}
	const size = 5 << 20
	_, err = conn.Write(make([]byte, size))
	check(t, err)
	check(t, conn.(*net.TCPConn).CloseWrite())
	text, err := io.ReadAll(conn)
	if want := fmt.Sprintf("heard %d", size); err != nil || string(text) != want {
		t.Errorf("got %q, %v, want %q", text, err, want)
	}
	h.token = "sk-wrong"
	if _, resp := tunnel(t, h, path); resp.StatusCode != 401 {
		t.Errorf("with a wrong key: got %d, want 401", resp.StatusCode)
	}
	h.key("sk-other", "proj_2")
	if _, resp := tunnel(t, h, path); resp.StatusCode != 404 {
		t.Errorf("another project's: got %d, want 404", resp.StatusCode)
	}
}

// A tunnel ends with its server, its container or its other end.
func TestTunnelEnds(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	accepted := make(chan net.Conn, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	for name, end := range map[string]func(id string, inner net.Conn){
		"other end": func(_ string, inner net.Conn) { inner.Close() },
		"container": func(id string, _ net.Conn) { h.call(200, "DELETE", "/v1/containers/"+id, nil) },
	} {
		id := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
		conn, resp := tunnel(t, h, "/v1/containers/"+id+"/ports/"+portOf(l))
		if resp.StatusCode != 101 {
			t.Fatalf("%s: got %d, want 101", name, resp.StatusCode)
		}
		inner := <-accepted
		end(id, inner)
		wantEnd(t, name, conn)
		inner.Close()
	}
	id := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	conn, _ := tunnel(t, h, "/v1/containers/"+id+"/ports/"+portOf(l))
	inner := <-accepted
	h.stop(context.Canceled)
	wantEnd(t, "server", conn)
	inner.Close()
}

// wantEnd fails the test unless a connection ends soon.
func wantEnd(t *testing.T, name string, conn net.Conn) {
	t.Helper()
	check(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err := io.Copy(io.Discard, conn)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Errorf("%s: the tunnel did not end", name)
	}
}

// logged is a log that tests read while it is written.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
