package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// vault holds the stored secrets of a test.
type vault struct {
	mu     sync.Mutex
	values map[string]string
	down   bool
}

func (v *vault) set(name, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.values[name] = value
}

func (v *vault) get(_ context.Context, name string) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return "", errors.New("the store of " + v.values[name] + " is away")
	}
	if value, ok := v.values[name]; ok {
		return value, nil
	}
	return "", ErrNoSecret
}

// transformWorld is a secretWorld whose gate has transforms instead of secrets.
func transformWorld(t *testing.T, h http.HandlerFunc, transforms ...Transform) (*world, *http.Client, *vault) {
	w, c, _ := secretWorld(t, h)
	v := &vault{values: map[string]string{"key": value}}
	w.gate.Secrets, w.gate.Value = nil, v.get
	for _, tr := range transforms {
		parsed, err := ParseTransform(tr.Host, tr.Headers)
		if err != nil {
			t.Fatal(err)
		}
		w.gate.Transforms = append(w.gate.Transforms, parsed)
	}
	return w, c, v
}

var bearer = Transform{"API.example.com",
	map[string]string{"authorization": "Bearer ${e2b.secrets.key}", "X-Team": "a"}}

// A transform sets fields in place of the sandbox's, which has no way to keep or remove them.
func TestTransform(t *testing.T) {
	got := make(chan http.Header, 1)
	w, c, _ := transformWorld(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }, bearer)
	ask := func(fields string) http.Header {
		t.Helper()
		conn, _ := w.connect("api.example.com:443")
		own := tls.Client(conn, &tls.Config{ServerName: "api.example.com",
			RootCAs: c.Transport.(*http.Transport).TLSClientConfig.RootCAs})
		fmt.Fprintf(own, "GET / HTTP/1.1\r\nHost: api.example.com\r\n%s\r\n", fields)
		resp, err := http.ReadResponse(bufio.NewReader(own), nil)
		if err != nil {
			t.Fatalf("%q: %v", fields, err)
		}
		own.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%q: got %s", fields, resp.Status)
		}
		return <-got
	}
	asked := map[string]string{
		"none":           "",
		"own":            "Authorization: mine\r\nauthorization: mine too\r\nX-TEAM: b\r\n",
		"underscores":    "X_Team: b\r\n",
		"hop by hop":     "Connection: authorization, x-team\r\n",
		"a placeholder":  "X-Other: ${e2b.secrets.key}\r\n",
		"in the trailer": "Trailer: Authorization\r\n",
	}
	for name, fields := range asked {
		h := ask(fields)
		if a := h.Values("Authorization"); len(a) != 1 || a[0] != "Bearer "+value {
			t.Errorf("%s: authorization %q", name, a)
		}
		if a := h.Values("X-Team"); len(a) != 1 || a[0] != "a" || h["X_team"] != nil {
			t.Errorf("%s: team %q, %q", name, a, h["X_team"])
		}
		if o := h.Get("X-Other"); strings.Contains(o, value) {
			t.Errorf("%s: the sandbox's own placeholder was filled in: %q", name, o)
		}
	}
	flows := w.ended(len(asked))
	for _, f := range flows {
		if text := fmt.Sprint(f); strings.Contains(text, value) {
			t.Errorf("a flow has the value: %s", text)
		}
	}
	if f := flows[len(flows)-1]; len(f.Secrets) != 1 || f.Secrets[0] != "key" {
		t.Errorf("the last flow names the secrets %q", f.Secrets)
	}
}

// The exact name wins, then the longest suffix. A wildcard does not match the name itself.
func TestTransformFor(t *testing.T) {
	g := &Gate{}
	for _, host := range []string{"*.com", "*.example.com", "api.example.com", "*.api.example.com"} {
		tr, err := ParseTransform(host, nil)
		if err != nil {
			t.Fatal(err)
		}
		g.Transforms = append(g.Transforms, tr)
	}
	for host, want := range map[string]string{"example.com": "*.com", "a.example.com": "*.example.com",
		"a.b.example.com": "*.example.com",
		"api.example.com": "api.example.com", "x.api.example.com": "*.api.example.com", "com": "", "example.org": "",
		"evilexample.com": "*.com", "93.184.216.34": ""} {
		got := ""
		if tr := g.transformFor(host); tr != nil {
			got = tr.Host
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", host, got, want)
		}
	}
}

// Without encryption, others on the network could read the fields.
func TestTransformNeedsTLS(t *testing.T) {
	got := make(chan string, 1)
	w, _, _ := transformWorld(t, func(http.ResponseWriter, *http.Request) {}, bearer)
	addr, _ := serve(t, false, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Authorization") })
	w.host("api.example.com", "93.184.216.34", 80, addr)
	conn, _ := w.connect("api.example.com:80")
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
	if a := <-got; a != "" {
		t.Errorf("the host got %q without TLS", a)
	}
}

// The connection to the host of a transform serves no other name.
func TestTransformOfAnotherName(t *testing.T) {
	w, c, _ := transformWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("the host was asked") }, bearer)
	roots := c.Transport.(*http.Transport).TLSClientConfig.RootCAs
	conn, _ := w.connect("api.example.com:443")
	own := tls.Client(conn, &tls.Config{ServerName: "api.example.com", RootCAs: roots})
	fmt.Fprint(own, "GET / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(own), nil); err != nil ||
		resp.StatusCode != http.StatusForbidden {
		t.Errorf("another Host: got %v, %v", resp, err)
	}
	conn, _ = w.connect("api.example.com:443")
	if err := tls.Client(conn, &tls.Config{ServerName: "evil.example.com", RootCAs: roots}).Handshake(); err == nil {
		t.Error("another server name was accepted")
	}
}

// A secret that cannot be filled in is no reason to ask without it.
func TestTransformWithoutItsSecret(t *testing.T) {
	w, c, v := transformWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("the host was asked") }, bearer)
	delete(v.values, "key")
	if status, body := get(t, c, "https://api.example.com/"); status != http.StatusForbidden || !strings.Contains(body,
		`names the secret "key", which does not exist`) {
		t.Errorf("no secret: got %d %s", status, body)
	}
	v.set("key", value)
	v.down = true
	if status, body := get(t, c, "https://api.example.com/"); status != http.StatusForbidden || strings.Contains(body,
		value) {
		t.Errorf("store away: got %d %s", status, body)
	}
	v.down = false
	v.set("key", "two\r\nX-Evil: lines")
	if status, body := get(t, c, "https://api.example.com/"); status != http.StatusForbidden || strings.Contains(body,
		"Evil") {
		t.Errorf("two lines: got %d %s", status, body)
	}
	v.set("key", strings.Repeat("x", maxHeaderFill))
	if status, _ := get(t, c, "https://api.example.com/"); status != http.StatusForbidden {
		t.Errorf("too large: got %d", status)
	}
	w.gate.Value = nil
	if status, _ := get(t, c, "https://api.example.com/"); status != http.StatusForbidden {
		t.Errorf("no store: got %d", status)
	}
}

// A host may answer with a secret that was replaced, or that came with a later request. Responses that began earlier
// mask it as well.
func TestTransformEcho(t *testing.T) {
	seen, release := make(chan string, 8), make(chan string)
	w, c, v := transformWorld(t, func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch r.URL.Path {
		case "/stream":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "data: "+<-release+"\n")
		case "/socket":
			conn, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			defer conn.CloseNow()
			_, _, _ = conn.Read(r.Context())
			_ = conn.Write(r.Context(), websocket.MessageText, []byte(<-release))
			_, _, _ = conn.Read(r.Context())
		default:
			seen <- key
			w.Header().Set("X-Echo", key)
			_, _ = io.WriteString(w, key)
		}
	}, bearer)
	const shown = "${e2b.secrets.key}"
	if _, body := get(t, c, "https://api.example.com/"); body != shown {
		t.Errorf("an echo: got %q", body)
	}
	stream, err := c.Get("https://api.example.com/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	socket, _, err := websocket.Dial(t.Context(), "wss://api.example.com/socket", &websocket.DialOptions{HTTPClient: c})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.CloseNow()
	if err := socket.Write(t.Context(), websocket.MessageText, []byte("go")); err != nil {
		t.Fatal(err)
	}
	const next = "another-value-of-the-key"
	v.set("key", next)
	if _, body := get(t, c, "https://api.example.com/"); body != shown {
		t.Errorf("an echo of the new value: got %q", body)
	}
	if first, second := <-seen, <-seen; first != value || second != next {
		t.Errorf("the host got %q, then %q", first, second)
	}
	release <- value + " " + next
	release <- value + " " + next
	text, _ := io.ReadAll(stream.Body)
	if string(text) != "data: "+shown+" "+shown+"\n" {
		t.Errorf("the stream: got %q", text)
	}
	_, text2, err := socket.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []string{string(text), string(text2)} {
		if strings.Contains(got, value) || strings.Contains(got, next) {
			t.Errorf("leaked: %q", got)
		}
	}
	for i := range 2 * maxStored { // a value that is in use again must not be the first to be forgotten
		w.gate.hideValue(Secret{Name: "key", Value: fmt.Sprintf("value-%03d", i), Placeholder: shown})
		w.gate.hideValue(Secret{Name: "key", Value: next, Placeholder: shown})
	}
	if got := w.gate.mask().replace(next); got != shown {
		t.Errorf("a value in use was forgotten: %q", got)
	}
	if n := len(w.gate.masked.stored); n > maxStored {
		t.Errorf("%d values are kept, want at most %d", n, maxStored)
	}
}

func TestParseTransform(t *testing.T) {
	for name, tr := range map[string]Transform{
		"any host":            {"*", nil},
		"a port":              {"example.com:443", nil},
		"an address":          {"10.0.0.1", nil},
		"no name":             {"a b", nil},
		"another wildcard":    {"a.*.com", nil},
		"the host":            {"example.com", map[string]string{"host": "evil.com"}},
		"the length":          {"example.com", map[string]string{"Content-length": "1"}},
		"the encoding":        {"example.com", map[string]string{"accept-encoding": "br"}},
		"a range":             {"example.com", map[string]string{"RANGE": "bytes=0-1"}},
		"a WebSocket":         {"example.com", map[string]string{"Sec-WebSocket-Extensions": "x"}},
		"two lines":           {"example.com", map[string]string{"X": "a\r\nY: b"}},
		"a name of two":       {"example.com", map[string]string{"X: a\r\nY": "b"}},
		"an empty name":       {"example.com", map[string]string{"": "b"}},
		"twice":               {"example.com", map[string]string{"x-a": "1", "X-A": "2"}},
		"a long value":        {"example.com", map[string]string{"X": strings.Repeat("x", maxFieldValue+1)}},
		"an identity":         {"example.com", map[string]string{"X": "${e2b.identity.tokens.aws}"}},
		"a secret of no name": {"example.com", map[string]string{"X": "${e2b.secrets.}"}},
		"no closing brace":    {"example.com", map[string]string{"X": "${e2b.secrets.a"}},
		"another case":        {"example.com", map[string]string{"X": "a ${E2B.secrets.a}"}},
	} {
		if got, err := ParseTransform(tr.Host, tr.Headers); err == nil {
			t.Errorf("%s: got %+v, want an error", name, got)
		}
	}
}
