package drivertest

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/berth-run/berth/sandbox"
)

// Base returns the root file system of the template base, which `make test` builds. It skips
// the test if there is none.
func Base(tb testing.TB) string {
	tb.Helper()
	state := os.Getenv("BERTH_TEST_STATE")
	if state == "" {
		tb.Skip("skipped: BERTH_TEST_STATE is not set to the directory of the base template; run make test")
	}
	line, err := os.ReadFile(filepath.Join(state, "images/names/base"))
	if err != nil {
		tb.Skipf("skipped: no base template: %v", err)
	}
	digest, _, _ := strings.Cut(string(line), " ")
	return filepath.Join(state, "images/templates", strings.TrimPrefix(digest, "sha256:"), "rootfs")
}

//go:embed websocket.py
var websocketScript string

// Clients runs common programs in a sandbox of the base template against hosts that the test
// serves: one whose TLS is passed through, and one with a secret.
func Clients(t *testing.T, d sandbox.Driver) {
	o, large := newSite(t)
	b := Start(t, d, sandbox.Spec{ID: "clients", Template: sandbox.Template{Path: Base(t)}})
	o.connect(t, b)
	if err := b.Client.WriteFile(t.Context(), "/mnt/data", "websocket.py", "",
		strings.NewReader(websocketScript)); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ what, script, want string }{
		{"git", "git clone -q https://example.com/open.git a && cat a/README", "hello"},
		{"git with a secret", `git clone -q "https://git:$API_KEY@api.example.com/closed.git" b && cat b/README`,
			"hello"},
		{"git push",
			"cd b && head -c 3000000 /dev/urandom >big && git add big && git -c user.name=a -c user.email=a@b commit -qm big && git push -q && git ls-remote -q | grep -c refs/heads",
			"1"},
		{"git with a secret in a header",
			`git -c http.extraHeader="X-Key: $API_KEY" ls-remote -q https://api.example.com/closed.git | grep -c refs/heads`,
			"1"},
		{"git without the secret",
			"GIT_TERMINAL_PROMPT=0 git clone -q https://api.example.com/closed.git c 2>&1 | grep -c disabled", "1"},
		{"pip", "pip install -q --target p --index-url https://example.com/simple/ tiny && PYTHONPATH=p python3 -c 'import tiny; print(tiny.word)'",
			"hello"},
		{"pip with a secret",
			`pip install -q --target q --index-url "https://u:$API_KEY@api.example.com/closed/simple/" tiny && PYTHONPATH=q python3 -c 'import tiny; print(tiny.word)'`,
			"hello"},
		{"large", "curl -sSf https://example.com/large | sha256sum | cut -d' ' -f1", large},
		{"large, looked through", "curl -sSf https://api.example.com/large | sha256sum | cut -d' ' -f1", large},
		{"large, the other way",
			"curl -sSf https://example.com/large -o large && curl -sSf -T large https://example.com/sum && curl -sSf -T large https://api.example.com/sum",
			large + "\n" + large},
		{"WebSocket", "python3 websocket.py example.com /ws", "echo hi"},
		{"WebSocket with a secret", `python3 websocket.py api.example.com "/closed/ws?key=$API_KEY"`, "echo hi"},
		{"WebSocket without it", `python3 websocket.py api.example.com "/closed/ws?key=wrong" | grep -c 401`, "1"},
		{"a redirect to another host",
			"curl -sS -L https://example.com/away 2>&1 | grep -c 'Could not resolve host: evil.com'", "1"},
		{"a redirect to metadata", "curl -sS -m 20 -L https://example.com/metadata >/dev/null 2>&1; echo $?", "7"},
		{"Node", `node -e "fetch('https://example.com/hello').then(r => r.text()).then(console.log)"`, "hello"},
		{"Node with a secret",
			`node -e "fetch('https://api.example.com/closed/hello', {headers: {'X-Key': process.env.API_KEY}}).then(r => r.text()).then(console.log)"`,
			"hello"},
		{"requests", `python3 -c "import requests; print(requests.get('https://example.com/hello').text)"`, "hello"},
		{"openssl", "echo | openssl s_client -connect api.example.com:443 -servername api.example.com -verify_return_error 2>/dev/null | grep -q 'Verify return code: 0' && echo yes",
			"yes"},
	} {
		t.Run(step.what, func(t *testing.T) {
			if r := b.Sh("cd /mnt/data && " + step.script); strings.TrimSpace(r.Stdout) != step.want {
				t.Errorf("got %+v, want %q", r, step.want)
			}
		})
	}
}

// newSite returns an outside that serves files for programs: example.com to all clients, and
// below /closed on api.example.com to those with the secret.
func newSite(t *testing.T) (o *outside, large string) {
	body := make([]byte, 64<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(body)
	sum := sha256.Sum256(body)
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
	mux.HandleFunc("GET /large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	mux.HandleFunc("PUT /sum", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		_, _ = io.Copy(h, r.Body)
		fmt.Fprintf(w, "%x\n", h.Sum(nil))
	})
	mux.HandleFunc("/ws", echoWebSocket)
	mux.Handle("/away", http.RedirectHandler("https://evil.com/", http.StatusFound))
	mux.Handle("/metadata", http.RedirectHandler("http://169.254.169.254/latest/meta-data/", http.StatusFound))
	mux.HandleFunc("/simple/tiny/", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `<a href="tiny-1.0-py3-none-any.whl">tiny-1.0-py3-none-any.whl</a>`)
	})
	mux.HandleFunc("/simple/tiny/tiny-1.0-py3-none-any.whl", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(wheel(t))
	})
	git := gitServer(t)
	mux.Handle("/open.git/", git)
	mux.Handle("/closed.git/", locked(git))
	mux.Handle("/closed/", locked(http.StripPrefix("/closed", mux)))
	secure := httptest.NewTLSServer(mux)
	t.Cleanup(secure.Close)
	return newOutsideOf(t, secure, map[int]string{443: secure.Listener.Addr().String()}, "example.com",
		"api.example.com"), hex.EncodeToString(sum[:])
}

// locked requires the secret: as a password, in a header, or in the query.
func locked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		if password != secretValue && r.Header.Get("X-Key") != secretValue && r.URL.Query().Get("key") != secretValue {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// gitServer serves open.git and closed.git, which has one file.
func gitServer(t *testing.T) http.Handler {
	dir := t.TempDir()
	script := `git init -q w && cd w && echo hello >README && git add README && git -c user.name=a -c user.email=a@b commit -qm first && cd .. &&
		for r in open closed; do git clone -q --bare w $r.git && git -C $r.git config http.receivepack true || exit 1; done`
	if err := run(t, dir, "sh", "-c", script); err != nil {
		t.Fatal(err)
	}
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1",
			"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // CGI does not support chunks
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		backend.ServeHTTP(w, r)
	})
}

// wheel returns a Python package.
func wheel(t *testing.T) []byte {
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for name, text := range map[string]string{
		"tiny.py":                     "word = 'hello'\n",
		"tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
		"tiny-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"tiny-1.0.dist-info/RECORD":   "tiny.py,,\n",
	} {
		w, err := z.Create(name)
		if err != nil {
			t.Error(err)
		}
		io.WriteString(w, text)
	}
	if err := z.Close(); err != nil {
		t.Error(err)
	}
	return buf.Bytes()
}

func echoWebSocket(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	kind, b, err := conn.Read(r.Context())
	if err == nil {
		_ = conn.Write(r.Context(), kind, append([]byte("echo "), b...))
	}
}
