package preview

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/seal"
)

// show serves handler as a port under a prefix, as a link or not.
func show(t *testing.T, handler http.Handler, link bool) (*httptest.Server, Target) {
	inner := httptest.NewServer(handler)
	t.Cleanup(inner.Close)
	return showConn(t, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", inner.Listener.Addr().String())
	}, link)
}

// showConn is show for what dial connects to.
func showConn(t *testing.T, dial func(context.Context) (net.Conn, error), link bool) (*httptest.Server, Target) {
	target := Target{Container: "cntr_1", Port: 8000, Prefix: "/p/x", Dial: dial, Link: link, Keyed: !link}
	p := New(slog.New(slog.NewTextHandler(t.Output(), nil)))
	outer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		t := target
		t.Path = strings.TrimPrefix(r.URL.EscapedPath(), t.Prefix)
		if err := p.Serve(w, r, t); err != nil {
			http.Error(w, string(berth.ErrorCode(err))+": "+err.Error(), http.StatusTeapot)
		}
	}))
	t.Cleanup(outer.Close)
	return outer, target
}

// raw answers every connection with bytes and ignores requests.
func raw(t *testing.T, answer string) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			if _, err := http.ReadRequest(bufio.NewReader(there)); err == nil {
				io.WriteString(there, answer)
			}
		}()
		return here, nil
	}
}

// get sends a request and does not follow redirects.
func get(t *testing.T, url string, header ...string) *http.Response {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// The request to the sandbox contains no secrets of this server.
func TestRequestKeepsSecrets(t *testing.T) {
	var got http.Request
	srv, target := show(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = *r }), true)
	prefix := cookiePrefix(target)
	get(t, srv.URL+"/p/x/a%2Fb/%2e?q=1;2", "Authorization", "Bearer sk-secret", "Cookie",
		"house=sk-secret; "+prefix+"own=1; "+prefix+"__Host-two=2",
		"Cookie", "berth_other_a=sk-secret", "Proxy-Authorization", "sk-secret", "X-Forwarded-For", "203.0.113.7",
		"Forwarded", "for=203.0.113.7",
		"Referer", "http://host/preview/sk-secret/", "Origin", "null", "OpenAI-Project", "sk-secret",
		"X-Client-Request-Id", "mine",
		"Berth-User", "root", "Berth-Authorization", "Basic app", "Connection", "X-Hop", "X-Hop", "1", "X-App", "2",
		"User-Agent", "curl")
	want := http.Header{"Authorization": {"Basic app"}, "Cookie": {"own=1; __Host-two=2"},
		"Origin": {"http://localhost:8000"},
		"X-App":  {"2"}, "X-Client-Request-Id": {"mine"}, "User-Agent": {"curl"}, "Accept-Encoding": {"gzip"}}
	if diff := cmp.Diff(want, got.Header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if got.Host != "localhost:8000" || got.RequestURI != "/a%2Fb/%2e?q=1;2" {
		t.Errorf("got %s %s, want localhost:8000 and the path as it was written", got.Host, got.RequestURI)
	}
}

// A page of the sandbox has another origin than the API: headers that apply to an origin are
// removed.
func TestAnswerSpeaksForItself(t *testing.T) {
	hostile := map[string]string{
		"Strict-Transport-Security": "max-age=1", "Clear-Site-Data": `"*"`, "Service-Worker-Allowed": "/",
		"Alt-Svc": `h3="evil:443"`,
		"NEL":     "{}", "Report-To": "{}", "Reporting-Endpoints": "x", "Public-Key-Pins": "x", "Expect-CT": "x",
		"Set-Cookie2":                 "a=b",
		"Access-Control-Allow-Origin": "https://evil", "Access-Control-Allow-Credentials": "true",
		"WWW-Authenticate": "Basic", "Origin-Agent-Cluster": "?1",
		"Content-Security-Policy": "default-src *; report-uri http://evil", "Accept-CH": "x", "Critical-CH": "x",
		"Speculation-Rules": "x", "Set-Login": "x",
		"Secure-Session-Registration": "x", "Refresh": "0;url=/v1", "Link": "</v1>; rel=preload",
		"X-Accel-Redirect": "/etc/passwd", "X-Sendfile": "/etc/passwd",
		"X-Request-Id": "forged", "X-Ratelimit-Remaining-Requests": "0", "OpenAI-Version": "forged",
		"Use-As-Dictionary": `match="/*"`, "Content-Location": "/v1",
		"CDN-Cache-Control": "public", "Surrogate-Control": "public", "Server": "x", "Via": "x",
		"Proxy-Authenticate": "Basic", "Referrer-Policy": "unsafe-url",
	}
	for _, link := range []bool{false, true} {
		srv, _ := show(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for name, value := range hostile {
				w.Header().Set(name, value)
			}
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("X-Total", "3")
			w.Header().Set("Cache-Control", "public, max-age=5, S-Maxage=7")
			w.WriteHeader(404)
			io.WriteString(w, "page")
			w.(http.Flusher).Flush()
			w.Header().Set(http.TrailerPrefix+"Set-Cookie", "late=1; Path=/")
			w.Header().Set(http.TrailerPrefix+"Clear-Site-Data", `"*"`)
		}), link)
		resp := get(t, srv.URL+"/p/x/")
		text, err := io.ReadAll(resp.Body)
		want := http.Header{"Content-Type": {"text/html"}, "X-Total": {"3"}, "Cache-Control": {"private, max-age=5"},
			"Content-Security-Policy": {policy},
			"Referrer-Policy":         {"no-referrer"}, "X-Robots-Tag": {"noindex, nofollow"},
			"Date": resp.Header["Date"]}
		if link {
			want["Access-Control-Allow-Origin"], want["Access-Control-Expose-Headers"] = []string{"*"}, []string{"*"}
			want["Cross-Origin-Resource-Policy"] = []string{"cross-origin"}
		}
		if diff := cmp.Diff(want, resp.Header); diff != "" || resp.StatusCode != 404 || string(text) != "page" ||
			err != nil {
			t.Errorf("link %v: got %d %q %v, header (-want +got):\n%s", link, resp.StatusCode, text, err, diff)
		}
		if len(resp.Trailer) > 0 {
			t.Errorf("link %v: got the trailer %v, want none", link, resp.Trailer)
		}
	}
}

// The policy lacks the keywords that would give the page the API's origin.
func TestPolicyKeepsTheOrigin(t *testing.T) {
	if !strings.HasPrefix(policy, "sandbox ") || strings.Contains(policy, "allow-same-origin") ||
		strings.Contains(policy, "allow-popups-to-escape") || strings.Contains(policy, "top-navigation") {
		t.Errorf("got %q, want a sandbox of its own origin", policy)
	}
}

// A sandbox gets only its own cookies.
func TestCookies(t *testing.T) {
	var got []string
	srv, target := show(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header["Cookie"]
		w.Header().Add("Set-Cookie", "a=1; Path=/; Domain=example.com; HttpOnly; SameSite=Lax")
		w.Header().Add("Set-Cookie", "b=2; Path=/../../v1")
		w.Header().Add("Set-Cookie", "__Host-c=3; Secure; Path=/; SameSite=None; Max-Age=60")
		w.Header().Add("Set-Cookie", "evil=1; Path=/;Path=/v1")
		w.Header().Add("Set-Cookie", "d=4; Path=/sub")
	}), false)
	p := cookiePrefix(target)
	resp := get(t, srv.URL+"/p/x/")
	want := []string{p + "a=1; Path=/p/x/; HttpOnly; SameSite=Lax", p + "b=2; Path=/p/x/../../v1",
		p + "__Host-c=3; Path=/p/x/; Max-Age=60; Secure; SameSite=None", p + "evil=1; Path=/p/x/v1",
		p + "d=4; Path=/p/x/sub"}
	if diff := cmp.Diff(want, resp.Header["Set-Cookie"]); diff != "" {
		t.Errorf("Set-Cookie (-want +got):\n%s", diff)
	}
	get(t, srv.URL+"/p/x/", "Cookie", p+"a=1; session=of-a-neighbour; "+p+"d=4")
	if diff := cmp.Diff([]string{"a=1; d=4"}, got); diff != "" {
		t.Errorf("Cookie (-want +got):\n%s", diff)
	}
	other := target
	other.Port = 8001
	if cookiePrefix(other) == p {
		t.Error("two ports of a container share their cookies")
	}
	many, _ := show(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range 100 {
			w.Header().Add("Set-Cookie", fmt.Sprintf("c%d=1", i))
		}
	}), false)
	if n := len(get(t, many.URL+"/p/x/").Header["Set-Cookie"]); n != maxCookies {
		t.Errorf("got %d cookies of 100, want %d", n, maxCookies)
	}
}

// Answers that are not valid HTTP are not forwarded.
func TestInvalidAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing":               "",
		"no HTTP":               "220 smtp ready\r\n",
		"a header without end":  "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", 1<<20),
		"two lengths":           "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"a NUL in the header":   "HTTP/1.1 200 OK\r\nX-A: \x00\r\n\r\n",
		"an upgrade not wanted": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"a status of none":      "HTTP/1.1 099 No\r\n\r\n",
	} {
		srv, _ := showConn(t, raw(t, answer), true)
		resp := get(t, srv.URL+"/p/x/")
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusTeapot || !strings.HasPrefix(string(text), "upstream") {
			t.Errorf("%s: got %d %.80s, want an error of the sandbox", name, resp.StatusCode, text)
		}
	}
	// Bytes after the answer are ignored.
	srv, _ := showConn(t,
		raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"), true)
	for range 3 {
		resp := get(t, srv.URL+"/p/x/")
		if text, _ := io.ReadAll(resp.Body); string(text) != "ok" {
			t.Errorf("got %q, want ok", text)
		}
	}
}

func TestMethodsThatAreRefused(t *testing.T) {
	reached := false
	srv, _ := show(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }), true)
	resp := get(t, srv.URL+"/p/x/sw.js", "Service-Worker", "script")
	if resp.StatusCode != http.StatusTeapot || reached {
		t.Errorf("a service worker: got %d, want it refused", resp.StatusCode)
	}
	for _, method := range []string{"TRACE", "CONNECT"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/p/x/", nil)
		r.Method = method
		if err := New(slog.Default()).Serve(w, r, Target{}); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("%s: got %v, want it refused", method, err)
		}
	}
}

// A page with a unique origin may send requests to its own server, through a link only.
func TestPreflight(t *testing.T) {
	reached := 0
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ })
	ask := func(srv *httptest.Server) *http.Response {
		req, _ := http.NewRequestWithContext(t.Context(), "OPTIONS", srv.URL+"/p/x/api", nil)
		req.Header.Set("Origin", "null")
		req.Header.Set("Access-Control-Request-Method", "PUT")
		req.Header.Set("Access-Control-Request-Headers", "content-type")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	link, _ := show(t, handler, true)
	resp := ask(link)
	if resp.StatusCode != 204 || resp.Header.Get("Access-Control-Allow-Origin") != "*" ||
		resp.Header.Get("Access-Control-Allow-Methods") != "PUT" || reached != 0 {
		t.Errorf("through a link: got %d %v, want leave", resp.StatusCode, resp.Header)
	}
	keyed, _ := show(t, handler, false)
	if resp := ask(keyed); resp.Header.Get("Access-Control-Allow-Origin") != "" || reached != 1 {
		t.Errorf("with a key: got %v, want no leave for pages", resp.Header)
	}
}

// Bodies of any size are forwarded in both directions at the same time, and events without delay.
func TestBodies(t *testing.T) {
	next := make(chan string)
	srv, _ := show(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo":
			_ = http.NewResponseController(w).EnableFullDuplex()
			io.Copy(w, r.Body)
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			for word := range next {
				fmt.Fprintf(w, "data: %s\n\n", word)
				w.(http.Flusher).Flush()
			}
		case "/range":
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader("0123456789"))
		}
	}), true)
	resp, err := http.Post(srv.URL+"/p/x/echo", "", io.LimitReader(rand.Reader, 32<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n != 32<<20 || err != nil {
		t.Errorf("got %d bytes back, %v, want %d", n, err, 32<<20)
	}
	part := get(t, srv.URL+"/p/x/range", "Range", "bytes=3-5")
	if text, _ := io.ReadAll(part.Body); part.StatusCode != 206 || string(text) != "345" ||
		part.Header.Get("Content-Range") != "bytes 3-5/10" {
		t.Errorf("got %d %q %v, want a part", part.StatusCode, text, part.Header)
	}
	go func() { next <- "one" }()
	events := bufio.NewReader(get(t, srv.URL+"/p/x/events").Body)
	for _, word := range []string{"one", "two", "three"} {
		if word != "one" {
			next <- word // only after the one before has arrived
		}
		line, err := events.ReadString('\n')
		if err != nil || line != "data: "+word+"\n" {
			t.Fatalf("got %q, %v, want %s", line, err, word)
		}
		events.ReadString('\n')
	}
	close(next)
}

func TestWebSocket(t *testing.T) {
	var origin string
	srv, _ := show(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin = r.Header.Get("Origin")
		w.Header().Set("Strict-Transport-Security", "max-age=1")
		conn, err := websocket.Accept(w, r, nil) // which wants its own origin
		if err != nil {
			return
		}
		conn.SetReadLimit(8 << 20)
		for {
			kind, data, err := conn.Read(r.Context())
			if err != nil {
				return
			}
			if err := conn.Write(r.Context(), kind, data); err != nil {
				return
			}
		}
	}), true)
	conn, resp, err := websocket.Dial(t.Context(), srv.URL+"/p/x/ws",
		&websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"null"}, "Authorization": {"Bearer sk"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if resp.Header.Get("Strict-Transport-Security") != "" || resp.Header.Get("Content-Security-Policy") != policy {
		t.Errorf("got the header %v, want a clean one", resp.Header)
	}
	conn.SetReadLimit(8 << 20)
	for _, size := range []int{1, 70_000, 4 << 20} {
		want := strings.Repeat("x", size)
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(want)); err != nil {
			t.Fatal(err)
		}
		_, got, err := conn.Read(t.Context())
		if err != nil || string(got) != want {
			t.Fatalf("got %d bytes, %v, want the %d sent", len(got), err, size)
		}
	}
	if origin != "http://localhost:8000" {
		t.Errorf("the server saw the origin %q, want its own", origin)
	}
}

// One container cannot use all of the server's connections.
func TestRequestsAtOnce(t *testing.T) {
	release := make(chan struct{})
	var begun sync.WaitGroup
	begun.Add(maxRequests)
	srv, _ := show(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			begun.Done()
			<-release
		}
	}), true)
	var ended sync.WaitGroup
	for range maxRequests {
		ended.Go(func() {
			resp, err := http.Get(srv.URL + "/p/x/wait")
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
		})
	}
	begun.Wait()
	if resp := get(t, srv.URL+"/p/x/"); resp.StatusCode != http.StatusTeapot {
		t.Errorf("one more: got %d, want it refused", resp.StatusCode)
	}
	close(release)
	ended.Wait()
	if resp := get(t, srv.URL+"/p/x/"); resp.StatusCode != 200 {
		t.Errorf("afterwards: got %d, want an answer", resp.StatusCode)
	}
}

func TestLinks(t *testing.T) {
	box, now := seal.New([32]byte{1}), time.Unix(1000, 0)
	want := Link{Project: "proj_1", Container: berth.ContainerID(berth.NewID(berth.PrefixContainer)), Port: 65535,
		ExpiresAt: 1001, Key: make([]byte, 32)}
	word := want.Seal(box)
	got, err := Open(box, word, now)
	if diff := cmp.Diff(want, got); err != nil || diff != "" || len(word) > 400 {
		t.Errorf("got %v (%d bytes), -want +got:\n%s", err, len(word), diff)
	}
	if strings.Contains(word, "proj") {
		t.Error("the link can be read")
	}
	broken := map[string]string{"": "empty", word + "A": "longer", word[:len(word)-1]: "shorter", "!": "no base64",
		strings.Repeat("A", 5000): "long"}
	for i := range len(word) {
		c := byte('A')
		if word[i] == c {
			c = 'B'
		}
		broken[word[:i]+string(c)+word[i+1:]] = fmt.Sprintf("character %d changed", i)
	}
	for word, how := range broken {
		if l, err := Open(box, word, now); err == nil {
			t.Errorf("%s: got %v, want an error", how, l)
		}
	}
	if _, err := Open(box, word, time.Unix(1001, 0)); err == nil {
		t.Error("expired: got no error")
	}
	if _, err := Open(seal.New([32]byte{2}), word, now); err == nil {
		t.Error("another server's: got no error")
	}
}

// Interim answers, whose headers are not checked, do not reach the client.
func TestHints(t *testing.T) {
	srv, _ := showConn(t,
		raw(t, "HTTP/1.1 103 Early Hints\r\nLink: </v1>; rel=preload\r\nSet-Cookie: house=evil\r\nX-Accel-Redirect: /etc/passwd\r\n\r\n"+
			"HTTP/1.1 102 Processing\r\nClear-Site-Data: \"*\"\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
		false)
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /p/x/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	got, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 200 OK\r\n") || !strings.HasSuffix(string(got),
		"\r\n\r\nok") {
		t.Errorf("got %q, %v, want the answer alone", got, err)
	}
	for _, no := range []string{"house", "X-Accel", "Clear-Site"} {
		if strings.Contains(string(got), no) {
			t.Errorf("the answer holds %s", no)
		}
	}
}
