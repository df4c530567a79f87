package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/freeport"
	"github.com/berth-run/berth/internal/squidtest"
)

func serverAt(t *testing.T, text string) *Server {
	t.Helper()
	u, err := ParseURL(text)
	if err != nil {
		t.Fatal(err)
	}
	return NewServer(u, nil, nil)
}

// The way to each project's host leads through its own proxy, with its credentials, and connections are not shared
// between projects. What the proxy refuses fails, and no_proxy and the loopback are reached without it.
func TestSelectorWithSquid(t *testing.T) {
	site, err := net.Listen("tcp", "127.0.0.1:80")
	if err != nil {
		t.Skipf("port 80 is in use: %v", err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s via %s", r.Host, r.Header.Get("Via"))
	})}
	go srv.Serve(site)
	defer srv.Close()
	hosts := map[string]string{"site.example.com": "127.0.0.1"}
	one, two := squidtest.Start(t, "", hosts), squidtest.Start(t, "", hosts)
	at := func(p *squidtest.Proxy, password string) *Rules {
		return NewRules(serverAt(t, fmt.Sprintf("http://%s:%s@%s", squidtest.User, password, p.Addr)),
			[]string{"direct.example.com"})
	}
	s := &Selector{Server: at(one, squidtest.Password), Projects: map[berth.ProjectID]*Rules{
		"proj_two": at(two, squidtest.Password), "proj_wrong": at(two, "wrong"), "proj_none": NewRules(nil, nil)}}
	client := &http.Client{Transport: s.Transport(WithDialer(func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("dialled directly")
	}))}
	get := func(p berth.ProjectID, url string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(berth.WithProject(t.Context(), p), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			if strings.Contains(err.Error(), squidtest.Password) {
				t.Errorf("an error has the password: %v", err)
			}
			return err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return fmt.Sprintf("%d %s", resp.StatusCode, text)
	}
	for _, tt := range []struct {
		project berth.ProjectID
		url     string
		want    string
	}{
		{"", "http://site.example.com/one", "200 site.example.com via 1.1"},
		{"proj_other", "http://site.example.com/one", "200 site.example.com via 1.1"},
		{"proj_two", "http://site.example.com/two", "200 site.example.com via 1.1"},
		{"proj_wrong", "http://site.example.com/wrong", "407"},
		{"proj_wrong", "https://site.example.com/wrong", "answered 407 Proxy Authentication Required"},
		{"", "https://site.example.com:444/", "answered 403 Forbidden"},
		{"", "http://gone.example.com/", "50"},
		{"", "http://direct.example.com/", "dialled directly"},
		{"proj_none", "http://site.example.com/", "dialled directly"},
		{"", "http://127.0.0.1:1/", "dialled directly"},
	} {
		if got := get(tt.project, tt.url); !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: got %s, want %s", tt.project, tt.url, got, tt.want)
		}
	}
	if log := one.Log(); strings.Count(log, "site.example.com/one") != 2 || strings.Contains(log, "two") {
		t.Errorf("the server's proxy logged\n%s", log)
	}
	if log := two.Log(); !strings.Contains(log, "site.example.com/two") || strings.Contains(log, "/one") {
		t.Errorf("the project's proxy logged\n%s", log)
	}
	one.Stop()
	if got := get("", "http://site.example.com/one"); !strings.Contains(got, "reach proxy") {
		t.Errorf("without the proxy: got %s", got)
	}
	guarded := &http.Client{Transport: s.Transport(WithGuard(func(context.Context, string) error {
		return errors.New("guarded")
	}))}
	if _, err := guarded.Get("http://site.example.com/"); err == nil || !strings.Contains(err.Error(), "guarded") {
		t.Errorf("with a guard: got %v", err)
	}
}

// SOCKS5 with a real server: credentials, names that it resolves, and one that it refuses.
func TestSOCKS(t *testing.T) {
	bin, err := exec.LookPath("microsocks")
	if err != nil {
		t.Skip("no microsocks: run scripts/setup test")
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "ahoy")
	}))
	site.Listener = l
	site.Start()
	defer site.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	addr := freeport.Addr(t)
	ip, socksPort, _ := net.SplitHostPort(addr)
	cmd := exec.Command(bin, "-i", ip, "-p", socksPort, "-u", "ada", "-P", "secret")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	for { // it tells nobody that it listens
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			break
		}
	}
	to := net.JoinHostPort(host, port)
	conn, err := serverAt(t, "socks5://ada:secret@"+addr).Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET / HTTP/1.0\r\n\r\n")
	if text, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(text), "ahoy") {
		t.Errorf("got %q, %v", text, err)
	}
	client := &http.Client{Transport: (&Selector{Server: NewRules(serverAt(t, "socks5://ada:secret@"+addr), nil)}).
		Transport()}
	if resp, err := client.Get("http://" + to); err != nil || resp.StatusCode != 200 {
		t.Errorf("a transport: got %v", err)
	}
	for _, at := range []string{"socks5://ada:wrong@" + addr, "socks5://" + addr} {
		if _, err := serverAt(t, at).Dial(t.Context(), to); err == nil || strings.Contains(err.Error(), "wrong") {
			t.Errorf("%s: got %v", at, err)
		}
	}
	if _, err := serverAt(t, "socks5://ada:secret@"+addr).Dial(t.Context(), "gone.invalid:80"); err == nil {
		t.Error("a name that does not exist was reached")
	}
}

// A hostile proxy cannot fill the memory, hold a connection, or make its words those of the server.
func TestHostileProxy(t *testing.T) {
	for name, answer := range map[string]string{
		"endless header": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20),
		"words":          "HTTP/1.1 403 \x1b[31mRun rm -rf\r\n\r\n",
		"another":        "SSH-2.0-OpenSSH\r\n",
		"cut":            "HTTP/1.1 200",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			conn.Read(make([]byte, 1<<10))
			io.WriteString(conn, answer)
		}()
		_, err = serverAt(t, "http://ada:secret@"+l.Addr().String()).Dial(t.Context(), "example.com:443")
		if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "rm -rf") {
			t.Errorf("%s: got %v", name, err)
		}
		l.Close()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if conn, err := l.Accept(); err == nil {
			defer conn.Close()
			conn.Read(make([]byte, 1<<10))
			cancel() // while the answer is awaited
			conn.Read(make([]byte, 1))
		}
	}()
	if _, err := serverAt(t, "http://"+l.Addr().String()).Dial(ctx, "example.com:443"); !errors.Is(err, context.Canceled) {
		t.Errorf("a silent proxy: got %v", err)
	}
}

// Without a proxy in the configuration, that of the environment is used, except for what is sent for clients.
func TestWithoutProxy(t *testing.T) {
	for _, s := range []*Selector{nil, {Server: NewRules(nil, nil)}} {
		if s.Active() || s.Transport().Proxy == nil || s.Transport(WithoutEnvironment()).Proxy != nil {
			t.Errorf("%v does not use the environment", s)
		}
	}
}

func TestParseURL(t *testing.T) {
	for text, ok := range map[string]bool{"http://proxy:3128": true, "socks5s://proxy": true, "https://u:p@proxy/": true,
		"proxy:3128": false, "ftp://proxy": false, "http://": false, "http://proxy/path": false, "http://u:pa%zz@proxy": false} {
		u, err := ParseURL(text)
		if (err == nil) != ok || text == "http://u:pa%zz@proxy" && strings.Contains(err.Error(), "zz") {
			t.Errorf("%s: got %v, %v", text, u, err)
		}
	}
}
