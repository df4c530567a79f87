package egress

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/berth-run/berth/egress/allow"
)

func requestRules(tb testing.TB, rules ...string) []allow.Request {
	tb.Helper()
	var all []allow.Request
	for _, text := range rules {
		r, err := allow.ParseRequest(text)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func TestCheckRules(t *testing.T) {
	for _, c := range []struct {
		rule, method, url string
		want              bool
	}{
		{"GET a.example/", "GET", "/", true},
		{"GET a.example/", "HEAD", "/", true},
		{"GET a.example/", "POST", "/", false},
		{"GET a.example/", "get", "/", false},
		{"GET a.example/", "GET", "/a", false},
		{"HEAD a.example/", "GET", "/", false},
		{"* a.example/**", "DELETE", "/", true},
		{"* a.example/**", "DELETE", "/a/b/", true},
		{"GET a.example/repos/**", "GET", "/repos", true},
		{"GET a.example/repos/**", "GET", "/repos/", true},
		{"GET a.example/repos/**", "GET", "/repos/a/b?q=../x", true},
		{"GET a.example/repos/**", "GET", "/reposecret", false},
		{"GET a.example/repos/**", "GET", "/Repos/a", false},
		{"GET a.example/repos/*/issues", "GET", "/repos/a/issues", true},
		{"GET a.example/repos/*/issues", "GET", "/repos/a/b/issues", false},
		{"GET a.example/repos/*/issues", "GET", "/repos/a/issues/", false},
		{"GET a.example/repos/*", "GET", "/repos/", false},
		{"GET a.example/**/end", "GET", "/a/b/end", true},
		{"GET a.example/**/end", "GET", "/end", true},
		{"GET a.example/**/end/**", "GET", "/a/end/b/end", true},
		{"GET a.example/**/end", "GET", "/end/a", false},
		{"GET a.example/a b/*", "GET", "/a%20b/%C3%A4", true},
		{"GET a.example/repos/**", "GET", "/repos/%61", true},
		{"GET a.example/repos/**", "GET", "/%72epos/a", true},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		err = checkRules(requestRules(t, c.rule), &http.Request{Method: c.method, URL: u})
		if (err == nil) != c.want {
			t.Errorf("%s: %s %s: got %v, want allowed: %v", c.rule, c.method, c.url, err, c.want)
		}
	}
}

// ambiguous are paths below /public that some hosts read as others.
var ambiguous = []string{"/public/../private", "/public/./../private", "/public/%2e%2e/private", "/public/%2E./private",
	"/public/..%2fprivate", "/public/a%2f..%2f..%2fprivate", "/public//private", "/public/..;/private",
	"/public/..;a=b/private", "/public/.;/private", "/public/;/private", "/public/..%5cprivate", "/public/..%5Cprivate", "/public/a\\..\\private",
	"/public/%252e%252e/private", "/public/%25%32%65./private", "/public/..%00/private", "/public/..%0a/private",
	"/public/%2e%2e%3b/private", "/public/.. /private", "/public/..%20/private", "/public/.../private",
	"/public/%c0%ae%c0%ae/private", "/public/..%252fprivate", "//a.example/public/x", "/public/%7f"}

// A hostile sandbox asks the host of a rule for what the rule does not allow. The host gets no request.
func TestRequestRuleAttacks(t *testing.T) {
	got := make(chan string, 100)
	w, c, _ := secretWorld(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Method + " " + r.RequestURI })
	w.gate.Secrets = nil
	w.gate.Policy.Requests = requestRules(t, "GET api.example.com/public/**", "POST api.example.com/items")
	roots := c.Transport.(*http.Transport).TLSClientConfig.RootCAs
	// ask sends a request as it is, and returns the status of its answer; 0 without one.
	ask := func(port int, request string) int {
		t.Helper()
		conn, _ := w.connect(fmt.Sprintf("api.example.com:%d", port))
		defer conn.Close()
		if port == 443 {
			conn = tls.Client(conn, &tls.Config{ServerName: "api.example.com", RootCAs: roots})
		}
		fmt.Fprint(conn, request)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return 0
		}
		return resp.StatusCode
	}
	addr, _ := serve(t, false, func(_ http.ResponseWriter, r *http.Request) { got <- r.Method + " " + r.RequestURI })
	w.host("api.example.com", "93.184.216.34", 80, addr)
	host := " HTTP/1.1\r\nHost: api.example.com\r\n"
	for _, port := range []int{443, 80} {
		for request, want := range map[string]string{
			"GET /public/a?b=c" + host + "\r\n":                       "GET /public/a?b=c",
			"GET /public/%61" + host + "\r\n":                         "GET /public/%61",
			"POST /items" + host + "Content-Length: 2\r\n\r\nhi":      "POST /items",
			"GET http://api.example.com/public/a" + host + "\r\n":     "GET /public/a",
			"GET /public/a" + host + "Connection: X-Original\r\n\r\n": "GET /public/a",
		} {
			if status := ask(port, request); status != http.StatusOK {
				t.Errorf("%d: %q: got %d", port, request, status)
				continue
			}
			if g := <-got; g != want {
				t.Errorf("%d: the host got %q, want %q", port, g, want)
			}
		}
		attacks := []string{
			"GET /" + host + "\r\n", "GET /private" + host + "\r\n", "DELETE /public/a" + host + "\r\n",
			"POST /public/a" + host + "Content-Length: 0\r\n\r\n", "POST /items/" + host + "Content-Length: 0\r\n\r\n",
			"GET /items" + host + "\r\n", "PATCH /items" + host + "\r\n", "get /public/a" + host + "\r\n",
			"OPTIONS *" + host + "\r\n", "GET http://evil.example.com/public/a" + host + "\r\n",
			"GET http://api.example.com/private" + host + "\r\n", "CONNECT api.example.com:443" + host + "\r\n",
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /public/a HTTP/1.1\r\nHost: api.example.com:8443\r\n\r\n",
			"GET /private" + host + "Host: api.example.com\r\n\r\n",
			"POST /items" + host + "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /private" + host + "\r\n",
		}
		for _, field := range []string{"X-HTTP-Method-Override: DELETE", "x_http_method_override: DELETE",
			"X-HTTP-Method: DELETE", "X-Method-Override: DELETE", "X-Original-URL: /private", "X-Rewrite-URL: /private"} {
			attacks = append(attacks, "POST /items"+host+field+"\r\nContent-Length: 0\r\n\r\n")
		}
		for _, path := range ambiguous {
			attacks = append(attacks, "GET "+path+host+"\r\n")
		}
		for _, request := range attacks {
			// The gate itself answers OPTIONS *, and the first of two requests is allowed.
			first := strings.Contains(request, "chunked")
			if status := ask(port, request); status == http.StatusOK && !first && !strings.HasPrefix(request, "OPTIONS") {
				t.Errorf("%d: %q was answered", port, request)
			}
			select {
			case g := <-got:
				if !first || g != "POST /items" {
					t.Errorf("%d: %q: the host got %q", port, request, g)
				}
			default:
			}
		}
	}
	// Neither another protocol nor a second request of a connection passes.
	conn, _ := w.connect("api.example.com:443")
	own := tls.Client(conn, &tls.Config{ServerName: "api.example.com", RootCAs: roots, NextProtos: []string{"h2", "http/1.1"}})
	fmt.Fprint(own, "GET /public/a"+host+"\r\n")
	in := bufio.NewReader(own)
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v", resp, err)
	}
	<-got
	if p := own.ConnectionState().NegotiatedProtocol; p == "h2" {
		t.Errorf("the gate speaks %s, whose requests it does not read", p)
	}
	fmt.Fprint(own, "GET /private"+host+"\r\n")
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("a second request: got %v, %v", resp, err)
	}
	conn, _ = w.connect("api.example.com:443")
	fmt.Fprint(conn, "SSH-2.0-x\r\n")
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("another protocol: got %d bytes", n)
	}
	if len(got) > 0 {
		t.Errorf("the host got %q", <-got)
	}
}

// A rule for one host does not concern another.
func TestRequestRulesOfOthers(t *testing.T) {
	p := &Policy{Requests: requestRules(t, "GET *.example.com/", "POST a.example.com/")}
	for host, want := range map[string]int{"a.example.com": 2, "b.example.com": 1, "example.com": 0, "evilexample.com": 0} {
		if got := len(p.requestsFor(host)); got != want {
			t.Errorf("%s: got %d rules, want %d", host, got, want)
		}
	}
}

// FuzzRequestPath looks for a path that a rule for /public allows although a host that decodes and cleans it, once or
// twice, takes it elsewhere.
func FuzzRequestPath(f *testing.F) {
	for _, p := range ambiguous {
		f.Add(p)
	}
	f.Add("/public/a/b")
	rules := requestRules(f, "GET a.example/public/**")
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil || checkRules(rules, &http.Request{Method: "GET", URL: u}) != nil {
			return
		}
		once := u.Path
		twice, err := url.PathUnescape(once)
		if err != nil {
			twice = once
		}
		for _, read := range []string{once, twice} {
			for _, as := range []string{read, strings.ReplaceAll(read, "\\", "/")} {
				if clean := path.Clean(as); clean != "/public" && !strings.HasPrefix(clean, "/public/") {
					t.Errorf("%q is allowed, and may be read as %q", raw, clean)
				}
			}
		}
	})
}
