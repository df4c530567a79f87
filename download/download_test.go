package download

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
)

// host serves files. Names resolve to the address that the test gives them; the dialler
// leads every public address to the host.
func host(t *testing.T, h http.HandlerFunc, policy *egress.Policy, names map[string]string) (*Fetcher, *int) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	dialled := 0
	return New(&egress.Gate{Policy: policy,
		Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			if names[name] == "" {
				return nil, &net.DNSError{Name: name, IsNotFound: true}
			}
			return []netip.Addr{netip.MustParseAddr(names[name])}, nil
		},
		Dial: func(ctx context.Context, network string, _ netip.AddrPort) (net.Conn, error) {
			dialled++
			var d net.Dialer
			return d.DialContext(ctx, network, srv.Listener.Addr().String())
		}}, 100), &dialled
}

func TestFetch(t *testing.T) {
	open := &egress.Policy{Open: true}
	f, _ := host(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/named":
			w.Header().Set("Content-Disposition", `attachment; filename="../report.pdf"`)
		case "/moved":
			http.Redirect(w, r, "http://files.example/letter", http.StatusFound)
			return
		case "/inside":
			http.Redirect(w, r, "http://inside.example/secret", http.StatusFound)
			return
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
			return
		case "/script":
			w.Header().Set("Location", "javascript:alert(1)")
			w.WriteHeader(http.StatusFound)
			return
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
			return
		case "/user":
			http.Redirect(w, r, "http://u:p@files.example/letter.pdf", http.StatusFound)
			return
		case "/gone":
			http.Error(w, "the secret of the house", http.StatusGone)
			return
		case "/large":
			_, _ = w.Write([]byte(strings.Repeat("x", 200)))
			return
		}
		w.Header().Set("Content-Type", "application/pdf")
		_, _ = w.Write([]byte("%PDF"))
	}, open, map[string]string{"files.example": "93.184.216.34", "inside.example": "10.0.0.7",
		"cloud.example": "169.254.169.254"})
	for url, want := range map[string]string{
		"http://files.example/a/letter.pdf":      "letter.pdf",
		"http://files.example/letter":            "letter.pdf",
		"http://files.example/":                  "file.pdf",
		"http://files.example/named":             "report.pdf",
		"http://files.example/moved":             "letter.pdf",
		"http://files.example/gone":              "The file could not be downloaded: its host answered 410.",
		"http://files.example/file":              "The file could not be downloaded: its host redirects to an address that is not http or https; use another address.",
		"http://files.example/script":            "The file could not be downloaded: its host redirects to an address that is not http or https; use another address.",
		"http://files.example/user":              "The file could not be downloaded: its host redirects to an address with a user name; use another address.",
		"http://files.example/loop":              "The file could not be downloaded: its host redirects more than 5 times; use the address where the redirects end.",
		"http://files.example/inside":            "The file could not be downloaded: its host does not exist, or this server may not reach it.",
		"http://inside.example/":                 "The file could not be downloaded: its host does not exist, or this server may not reach it.",
		"http://cloud.example/latest/meta-data/": "The file could not be downloaded: its host does not exist, or this server may not reach it.",
		"http://127.0.0.1/":                      "The file could not be downloaded: its host does not exist, or this server may not reach it.",
		"http://[::1]/":                          "The file could not be downloaded: its host does not exist, or this server may not reach it.",
		"http://2130706433/":                     "The file could not be downloaded: its host does not exist, or this server may not reach it.",
		"http://files.example:8080/":             "The file could not be downloaded: its host does not exist, or this server may not reach it.",
		"http://nowhere.example/":                "The file could not be downloaded: its host does not exist, or this server may not reach it.",
	} {
		name, content, err := f.Fetch(t.Context(), url)
		got := name
		if e, ok := errors.AsType[*berth.Error](err); ok {
			got = e.Message
		}
		if got != want || err == nil && string(content) != "%PDF" {
			t.Errorf("%s: got %q %q %v, want %q", url, got, content, err, want)
		}
	}
	if _, content, err := f.Fetch(t.Context(), "http://files.example/large"); err != nil || len(content) != 101 {
		t.Errorf("a large file: got %d bytes, %v, want 101", len(content), err)
	}
}

// TestFetchPolicy: an operator opens one private host, or closes all.
func TestFetchPolicy(t *testing.T) {
	rule, err := egress.ParseRule("wiki.internal")
	if err != nil {
		t.Fatal(err)
	}
	rule.Private = true
	names := map[string]string{"wiki.internal": "10.0.0.7", "files.example": "93.184.216.34"}
	serve := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("page")) }
	f, _ := host(t, serve, &egress.Policy{Rules: []egress.Rule{rule}}, names)
	if _, content, err := f.Fetch(t.Context(), "http://wiki.internal/p.html"); err != nil || string(content) != "page" {
		t.Errorf("the private host: got %q, %v", content, err)
	}
	if _, _, err := f.Fetch(t.Context(), "http://files.example/"); !errors.Is(err, egress.ErrRefused) {
		t.Errorf("another host: got %v", err)
	}
	closed, dialled := host(t, serve, &egress.Policy{}, names)
	if _, _, err := closed.Fetch(t.Context(), "http://files.example/"); !errors.Is(err, egress.ErrRefused) ||
		*dialled != 0 {
		t.Errorf("closed: got %v after %d connections", err, *dialled)
	}
}

// A name whose address changes between two look-ups, and in the redirects of one file: each request goes to an address
// that was checked for it, and none to one inside.
func TestNamesThatChange(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := len(r.URL.Path); n < 4 { // to the same name again
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
			return
		}
		_, _ = w.Write([]byte("public"))
	}))
	t.Cleanup(srv.Close)
	const public = "93.184.216.34"
	for _, tt := range []struct {
		answers []string // of the look-ups, in turn
		path    string
		dialled int
		why     string
	}{
		{[]string{public, public, public}, "/x", 3, ""},
		{[]string{public, "127.0.0.1"}, "/x", 1, "this server may not reach it"},
		{[]string{public, public, "::ffff:169.254.169.254"}, "/x", 2, "this server may not reach it"},
		{[]string{"10.0.0.1", public}, "/xxx", 0, "this server may not reach it"}, // asked once for a connection
	} {
		lookups := 0
		var dialled []netip.Addr
		f := New(&egress.Gate{Policy: &egress.Policy{Open: true},
			Lookup: func(context.Context, string) ([]netip.Addr, error) {
				lookups++
				return []netip.Addr{netip.MustParseAddr(tt.answers[lookups-1])}, nil
			},
			Dial: func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
				dialled = append(dialled, to.Addr())
				var d net.Dialer
				return d.DialContext(ctx, network, srv.Listener.Addr().String())
			}}, 100)
		_, content, err := f.Fetch(t.Context(), "http://files.example"+tt.path)
		if tt.why == "" && (err != nil || string(content) != "public") || tt.why != "" && (err == nil ||
			!strings.Contains(err.Error(), tt.why)) {
			t.Errorf("%v: got %q, %v, want the error %q", tt.answers, content, err, tt.why)
		}
		if len(dialled) != tt.dialled || slices.ContainsFunc(dialled, func(a netip.Addr) bool { return !egress.Public(a) }) {
			t.Errorf("%v: dialled %v, want %d public addresses", tt.answers, dialled, tt.dialled)
		}
	}
}
