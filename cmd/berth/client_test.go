package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A listener records the requests that it receives, and refuses all but /healthz.
type listener struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string // method, path and all headers
}

func listen(t *testing.T, status int) *listener {
	l := &listener{}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.seen = append(l.seen, fmt.Sprint(r.Method, " ", r.URL, " ", r.Header))
		l.mu.Unlock()
		if r.URL.Path == "/healthz" {
			return
		}
		w.WriteHeader(status)
		io.WriteString(w, `{"error":{"message":"You did not provide an API key."}}`)
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *listener) requests() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}

// commandLine runs a command line and returns its exit code and its standard error.
func commandLine(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	old := os.Stderr
	os.Stderr = f
	code = Main(args)
	os.Stderr = old
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(text)
}

// No command sends a vendor's key to the server's address, where another program, even a sandbox
// behind berth port, may listen.
func TestVendorKeysAreNotSent(t *testing.T) {
	for _, name := range []string{"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"} {
		t.Setenv(name, "sk-vendor-secret")
	}
	t.Setenv("BERTH_API_KEY", "")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"ps"}, {"top"}, {"rm", "cntr_1"}, {"logs", "cntr_1"}, {"models"}, {"volume", "ls"}, {"snapshot", "ls"},
		{"fork", "cntr_1"}, {"pause", "cntr_1"},
		{"exec", "cntr_1", "--", "true"}, {"cp", file, "cntr_1:/x"}, {"cp", "cntr_1:/x", file},
		{"port", "--link", "cntr_1", "80"},
		{"session", "export", "-o", filepath.Join(t.TempDir(), "x"), "resp_1"}, {"session", "import", file},
		{"session", "replay", "resp_1"}, {"run", "summarise"}, {"run", "--file", file, "summarise"},
	} {
		l := listen(t, http.StatusUnauthorized)
		t.Setenv("BERTH_URL", l.URL)
		code, stderr := commandLine(t, args...)
		if code != 1 || !strings.Contains(stderr, "OPENAI_API_KEY is for the upstream and is not sent") {
			t.Errorf("berth %s: got %d %s, want an error that names the missing key", strings.Join(args, " "), code,
				stderr)
		}
		if seen := l.requests(); len(seen) == 0 || strings.Contains(strings.Join(seen, "\n"), "secret") {
			t.Errorf("berth %s: the listener received %q", strings.Join(args, " "), seen)
		}
	}
}

// The probe for a server carries no key.
func TestProbeHasNoKey(t *testing.T) {
	t.Setenv("BERTH_API_KEY", "sk-berth-secret")
	l := listen(t, http.StatusUnauthorized)
	c := newClient(l.URL, false)
	if !c.serves(t.Context()) {
		t.Error("the server does not respond")
	}
	_ = c.call(t.Context(), "GET", "/v1/containers", nil, nil)
	seen := l.requests()
	if len(seen) != 2 || strings.Contains(seen[0], "secret") || !strings.Contains(seen[1], "Bearer sk-berth-secret") {
		t.Errorf("got %q, want the key in the second request only", seen)
	}
}

// A key is not sent unencrypted over a network.
func TestKeyIsNotSentInTheClear(t *testing.T) {
	t.Setenv("BERTH_API_KEY", "sk-berth-secret")
	for url, want := range map[string]bool{
		"https://berth.example.com": true, "http://127.0.0.1:8080": true, "http://127.9.9.9": true,
		"http://[::1]:8080": true, "http://localhost:8080": true,
		"http://berth.example.com": false, "http://10.0.0.1:8080": false, "http://localhost.example.com": false,
		"http://0x7f.1:8080": false,
	} {
		for _, plain := range []bool{false, true} {
			c := newClient(url, plain)
			req, err := http.NewRequest("GET", c.base+"/v1/models", nil)
			if err != nil {
				t.Fatal(err)
			}
			err = c.authorize(req)
			if sent := req.Header.Get("Authorization") != ""; sent != (want || plain) || sent != (err == nil) {
				t.Errorf("%s, --plain-http %v: sent %v, %v", url, plain, sent, err)
			}
		}
	}
	t.Setenv("BERTH_URL", "http://berth.invalid")
	for _, args := range [][]string{{"ps"}, {"exec", "cntr_1", "--", "true"}, {"run", "x"}} {
		if code, stderr := commandLine(t, args...); code != 1 || !strings.Contains(stderr, "--plain-http") {
			t.Errorf("berth %s: got %d %s, want it refused", args[0], code, stderr)
		}
	}
}

// A server cannot redirect the command line, with its key, to another origin.
func TestKeyStaysWithTheOrigin(t *testing.T) {
	t.Setenv("BERTH_API_KEY", "sk-berth-secret")
	other := listen(t, http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	t.Setenv("BERTH_URL", server.URL)
	for _, args := range [][]string{{"ps"}, {"cp", "cntr_1:/x", "-"}, {"exec", "cntr_1", "--", "true"},
		{"rm", "cntr_1"}} {
		if code, stderr := commandLine(t, args...); code != 1 || !strings.Contains(stderr, "redirects to "+other.URL) ||
			len(other.requests()) > 0 {
			t.Errorf("berth %s: got %d %s, %q", args[0], code, stderr, other.requests())
		}
	}
}

// berth create waits for a server that makes its template, and sends the same request again.
func TestCreateWaitsForTheTemplate(t *testing.T) {
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		bodies = append(bodies, r.Method+" "+r.URL.Path+" "+string(text))
		if len(bodies) < 3 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error": {"message": "The template is being loaded."}}`)
			return
		}
		_, _ = io.WriteString(w, `{"id": "cntr_1", "object": "container"}`)
	}))
	defer server.Close()
	t.Setenv("BERTH_URL", server.URL)
	code, stderr := commandLine(t, "create")
	if code != 0 || strings.Count(stderr, "the command waits: The template is being loaded.") != 1 {
		t.Errorf("got %d %s", code, stderr)
	}
	if len(bodies) != 3 || bodies[0] != bodies[2] || !strings.Contains(bodies[0], "POST /v1/containers {") {
		t.Errorf("requests: %q", bodies)
	}
}

func TestCheckURL(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:8080":  "",
		"https://berth.example":  "",
		"http://[::1]:8080":      "",
		"http://ju nk":           `"http://ju nk" is not a URL; expected the URL of a server, such as http://127.0.0.1:8080`,
		"http://":                `"http:" is not a URL`,
		"ftp://x":                `"ftp://x" is neither http nor https`,
		"http://127.0.0.1:99999": `"http://127.0.0.1:99999" has a port out of range`,
	} {
		err := checkURL(baseURL(text))
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
		if _, usage := errors.AsType[usageError](err); usage != (want != "") {
			t.Errorf("%s: a usage error: %v", text, usage)
		}
	}
}
