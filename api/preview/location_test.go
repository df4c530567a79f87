package preview

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// refused means that an error replaces the answer.
const refused = "refused"

// locate returns the Location after relocate for a client at api.test:8080.
func locate(location string, t Target) string {
	r := httptest.NewRequest("DELETE", "http://api.test:8080/p/x/dir/page", nil)
	h := http.Header{"Location": {location}}
	if err := relocate(h, r, t); err != nil {
		return refused
	}
	return h.Get("Location")
}

// With a link, redirects to the same port or to a public host are allowed, in a canonical
// spelling.
func TestRedirectOfLink(t *testing.T) {
	target := Target{Container: "cntr_1", Port: 8000, Prefix: "/p/x", Path: "/dir/page", Link: true}
	for location, want := range map[string]string{
		"/login":                            "/p/x/login",
		"next?a=b#c":                        "/p/x/dir/next?a=b#c",
		"../up":                             "/p/x/up",
		"?q":                                "/p/x/dir/page?q",
		`?q=a\b`:                            `/p/x/dir/page?q=a\b`,
		"http://localhost:8000/":            "/p/x/",
		"http://127.0.0.1:8000":             "/p/x/",
		"http://[::1]:8000/a%2Fb":           "/p/x/a%2Fb",
		"https://example.com/x":             "https://example.com/x",
		"https://EXAMPLE.com.:444/x":        "https://example.com:444/x",
		"https://bücher.example/ü?q#f":      "https://xn--bcher-kva.example/%C3%BC?q#f",
		"https://xn--bcher-kva.example/":    "https://xn--bcher-kva.example/",
		"https://1.1.1.1/":                  "https://1.1.1.1/",
		"https://[2606:4700::1111]:8/":      "https://[2606:4700::1111]:8/",
		"//example.com/x":                   "http://example.com/x",
		"/../../v1/containers":              "/p/x/v1/containers",
		"/%2e%2e/%2e%2e/%2e%2e/v1":          refused,
		"/..%2f..%2f..%2fv1":                refused,
		"/%2E%2E%5c..%5cv1":                 refused,
		`/..\..\v1`:                         "/p/x/v1",
		`\\api.test/v1`:                     refused,
		"http://api.test/v1/containers":     refused,
		"HTTP://API.TEST.:8080/v1":          refused,
		"//api.test:8080/v1/containers":     refused,
		"http://evil.api.test/":             refused,
		"http://u:p@example.com/":           refused,
		"http://localhost:6379/":            refused,
		"http://127.9.9.9/":                 refused,
		"http://[::ffff:127.0.0.1]:8080/v1": refused,
		"http://0.0.0.0:8080/v1":            refused,
		"http://x.localhost/":               refused,
		"javascript:alert(1)":               refused,
		"data:text/html,x":                  refused,
		"http:///v1":                        refused,
		"http:example.com":                  refused,
		"http://router/":                    refused,
		"http://nas.local/":                 refused,
		"http://metadata.google.internal/":  refused,
		"http://printer.home.arpa/":         refused,
		"http://10.0.0.1/":                  refused,
		"http://169.254.169.254/":           refused,
		"http://[fe80::1%25eth0]/":          refused,
		"http://[64:ff9b::7f00:1]/":         refused,
		"http://a_b.example.com/":           refused,
		"http://xn--example-.com/":          refused,
		"http://example.com:80:80/":         refused,
		"http://exa mple.com/":              refused,
		"http://example..com/":              refused,
		"http://example.com%00.evil.org/":   refused,
	} {
		if got := locate(location, target); got != want {
			t.Errorf("Location: %s: got %q, want %q", location, got, want)
		}
	}
}

// For a client with a key, only redirects to the same port are allowed.
func TestRedirectWithKey(t *testing.T) {
	target := Target{Container: "cntr_1", Port: 8000, Prefix: "/p/x", Path: "/dir/page", Keyed: true}
	for location, want := range map[string]string{
		"/login":                  "/p/x/login",
		"http://localhost:8000/a": "/p/x/a",
		"https://example.com/":    refused,
		"//example.com/":          refused,
		"https://1.1.1.1/":        refused,
		"http://api.test:8080/p/": refused,
	} {
		if got := locate(location, target); got != want {
			t.Errorf("Location: %s: got %q, want %q", location, got, want)
		}
	}
}

// loopbackSpellings are host names that clients interpret as the loopback, most of them
// after mapping characters or numbers.
var loopbackSpellings = []string{
	"localhost", "LOCALHOST", "localhost.", "ⓛocalhost", "ｌｏｃａｌｈｏｓｔ", "%E2%93%9Bocalhost", "%6cocalhost", "%6Cocalhost",
	"lo\u00adcalhost", "localho\u017ft", "xn--localhost-",
	"127.1", "127.0.1", "127.0.0.1.", "0x7f.1", "0X7F.0.0.1", "0x7f000001", "2130706433", "017700000001", "0177.0.0.1",
	"0177.1", "127.0.0.0x1", "127.0.0.01",
	"１２７.0.0.1", "127。0。0。1", "127%2e0%2e0%2e1", "⑫7.0.0.1", "0", "0x", "0.0.0.0", "0x0", "[::1]", "[::ffff:127.0.0.1]",
	"[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]", "[::]", "[::127.0.0.1]",
	"a@127.0.0.1", "a:b@localhost", "127.0.0.1\\@example.com", "example.com\\@127.0.0.1", "127.0.0.1#@example.com",
	"127.0.0.1?@example.com",
}

// redirects returns Locations that lead clients to a port of the loopback.
func redirects(port string) []string {
	var all []string
	for _, name := range loopbackSpellings {
		all = append(all, "http://"+name+":"+port+"/v1/away", "//"+name+":"+port+"/v1/away")
	}
	return append(all, "/../../v1/away", "/%2e%2e/%2e%2e/v1/away", `/..\..\v1/away`, "/.%2e/%2E./v1/away",
		"..%2f..%2fv1/away", "//../../v1/away",
		"http:/v1/away", "http:../../v1/away", "http:///v1/away", `\\127.0.0.1:`+port+`/v1/away`,
		`/\127.0.0.1:`+port+`/v1/away`, `\/127.0.0.1:`+port+`/v1/away`,
		"///127.0.0.1:"+port+"/v1/away", "h\tttp://127.0.0.1:"+port+"/v1/away", "http://127.0.0.1\t:"+port+"/v1/away",
		"/\t/127.0.0.1:"+port+"/v1/away")
}

// Real clients that follow redirects reach only the port, with a key and through a link.
func TestClientsFollowRedirects(t *testing.T) {
	var mu sync.Mutex
	var away []string // the requests that were led elsewhere
	front := httptest.NewUnstartedServer(nil)
	_, port, _ := net.SplitHostPort(front.Listener.Addr().String())
	locations := redirects(port) // by number in the path
	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil || n >= len(locations) {
			w.Write([]byte("the port's own"))
			return
		}
		w.Header()["Location"] = []string{locations[n]}
		w.WriteHeader(http.StatusTemporaryRedirect)
	}))
	defer inner.Close()
	p := New(slog.New(slog.DiscardHandler))
	front.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		below, ok := strings.CutPrefix(r.URL.Path, "/p/")
		if !ok {
			mu.Lock()
			away = append(away,
				r.Method+" "+r.RequestURI+" at "+r.Host+", Authorization: "+r.Header.Get("Authorization"))
			mu.Unlock()
			return
		}
		kind, _, _ := strings.Cut(below, "/")
		prefix := "/p/" + kind
		dial := func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", inner.Listener.Addr().String())
		}
		err := p.Serve(w, r, Target{Container: "cntr_1", Port: 8000, Prefix: prefix,
			Path: strings.TrimPrefix(r.URL.EscapedPath(), prefix), Dial: dial, Link: kind == "link",
			Keyed: kind == "key"})
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
	front.Start()
	defer front.Close()

	check := func(t *testing.T) {
		mu.Lock()
		defer mu.Unlock()
		for _, request := range away {
			t.Errorf("the client was led to %s", request)
		}
		away = nil
	}
	base := "http://localhost:" + port + "/p/"
	t.Run("node", func(t *testing.T) {
		node, err := exec.LookPath("node")
		if err != nil {
			t.Skip("node is not installed")
		}
		script := `const [base, n] = process.argv.slice(1);
			await Promise.all(["key", "link"].flatMap(kind => Array.from({length: +n}, async (_, i) => {
				try {
					await fetch(base + kind + "/" + i, {method: "DELETE", headers: {Authorization: "Bearer sk-berth-test"}});
				} catch {} // an invalid URL
			})));`
		if out, err := exec.CommandContext(t.Context(), node, "--input-type=module", "-e", script, base,
			strconv.Itoa(len(locations))).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		check(t)
	})
	t.Run("curl", func(t *testing.T) {
		curl, err := exec.LookPath("curl")
		if err != nil {
			t.Skip("curl is not installed")
		}
		for _, at := range []string{base, strings.Replace(base, "localhost", "127.0.0.1", 1)} {
			urls := at + "{key,link}/[0-" + strconv.Itoa(len(locations)-1) + "]"
			// An error of one URL does not stop the others; its status is the last one's.
			out, err := exec.CommandContext(t.Context(), curl, "-sSL", "--noproxy", "*", "-o", "/dev/null", "-d", "{}",
				"-H", "Authorization: Bearer sk-berth-test", urls).CombinedOutput()
			if _, exited := err.(*exec.ExitError); err != nil && !exited {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		check(t)
	})
	t.Run("go", func(t *testing.T) {
		for i := range locations {
			for _, kind := range []string{"key", "link"} {
				req, _ := http.NewRequestWithContext(t.Context(), "DELETE", base+kind+"/"+strconv.Itoa(i), nil)
				req.Header.Set("Authorization", "Bearer sk-berth-test")
				if resp, err := http.DefaultClient.Do(req); err == nil {
					resp.Body.Close()
				}
			}
		}
		check(t)
	})
	// Check that the test can fail: a client follows an unchanged Location.
	resp, err := http.Get("http://127.0.0.1:" + port + "/v1/away")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if len(away) != 1 {
		t.Errorf("got %d requests elsewhere, want the one that was made", len(away))
	}
}

// All allowed hosts have the same meaning in Node, which parses URLs as browsers do.
func TestHostsAsBrowsersReadThem(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	target := Target{Container: "cntr_1", Port: 8000, Prefix: "/p/x", Path: "/", Link: true}
	var passed []string
	for _, name := range append(loopbackSpellings, "bücher.example", "faß.de", "EXAMPLE.com", "ＥＸＡＭＰＬＥ.com",
		"example。com", "1.1.1.1", "xn--fa-hia.de", "a.b.c.example.org.", "☃.net",
		"ab--c.example.com", "xn--a.example.com", "-a.example.com", "0x7f.0.0.example", "9.9.9", "1.1.1.1.1", "a.0x",
		"2606:4700::1") {
		if got := locate("http://"+name+"/", target); got != refused {
			passed = append(passed, got)
		}
	}
	in, _ := json.Marshal(passed)
	out, err := exec.CommandContext(t.Context(), node, "-e",
		`console.log(JSON.stringify(JSON.parse(process.argv[1]).map(u => new URL(u, "http://api.test:8080/p/x/").href)))`,
		string(in)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var read []string
	if err := json.Unmarshal(out, &read); err != nil {
		t.Fatal(err)
	}
	for i, url := range passed {
		if read[i] != url {
			t.Errorf("got %s, which Node reads as %s", url, read[i])
		}
	}
	if len(passed) < 6 {
		t.Errorf("only %q passed, want ordinary names to", passed)
	}
}

// For any Location, with a key no redirect leaves the prefix, and without one all allowed
// redirects have a host in canonical spelling.
func FuzzLocation(f *testing.F) {
	for _, line := range redirects("8080") {
		f.Add(line)
	}
	base, _ := url.Parse("http://api.test:8080/p/x/dir/page")
	f.Fuzz(func(t *testing.T, line string) {
		target := Target{Container: "cntr_1", Port: 8000, Prefix: "/p/x", Path: "/dir/page", Keyed: true}
		if got := locate(line, target); got != refused && got != "" {
			to, err := base.Parse(got)
			if err != nil || to.Host != base.Host || !strings.HasPrefix(to.Path, "/p/x/") || !strings.HasPrefix(got,
				"/p/x/") {
				t.Errorf("Location: %q: got %q, which leaves the port", line, got)
			}
		}
		target.Keyed, target.Link = false, true
		got := locate(line, target)
		if got == refused || got == "" || strings.HasPrefix(got, "/p/x/") {
			return
		}
		to, err := url.Parse(got)
		if err != nil || to.Host == "" || strings.Trim(to.Host, "abcdefghijklmnopqrstuvwxyz0123456789-.:[]") != "" {
			t.Errorf("Location: %q: got %q, whose host has several spellings", line, got)
		}
		if again := locate(got, target); again != got {
			t.Errorf("Location: %q: got %q, and %q from that", line, got, again)
		}
	})
}
