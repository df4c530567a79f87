package e2e

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// A mintingSite is a host that gives tokens, by OAuth 2 and as GitHub does, an API that needs them, and a git server.
type mintingSite struct {
	key    *rsa.PrivateKey
	git    http.Handler
	minted atomic.Int64
	away   atomic.Bool
}

func (m *mintingSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	_, password, _ := r.BasicAuth()
	switch {
	case m.away.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Path == "/oauth/token":
		if password != "client-secret-canary" || r.FormValue("grant_type") != "client_credentials" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"oauth-canary-%d","token_type":"Bearer","expires_in":3600}`, m.minted.Add(1))
	case r.URL.Path == "/api/v3/app/installations/456/access_tokens":
		signed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
		var claims jwt.Claims
		if err != nil || signed.Claims(m.key.Public(), &claims) != nil || claims.Issuer != "123" ||
			claims.ValidateWithLeeway(jwt.Expected{Time: time.Now()}, 0) != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"token":"ghs_canary-%d","expires_at":%q}`, m.minted.Add(1),
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	case r.URL.Path == "/api" && strings.HasPrefix(token, "oauth-canary-"):
		fmt.Fprintf(w, "fine, you sent %s", token)
	case strings.HasPrefix(r.URL.Path, "/me/"):
		if !strings.HasPrefix(password, "ghs_canary-") {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		body, _ := io.ReadAll(r.Body) // package cgi takes no chunks
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		m.git.ServeHTTP(w, r)
	default:
		w.WriteHeader(http.StatusForbidden)
	}
}

// TestMinting has programs in a sandbox use an API and a git repository with tokens that they never see: the server gets
// them, by OAuth 2 and as a GitHub App, and sends them. Also after the server was killed, and while the endpoint is away.
func TestMinting(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, args := range [][]string{{"init", "-q", "--bare", "-b", "main", root + "/me/tool.git"},
		{"-C", root + "/me/tool.git", "config", "http.receivepack", "true"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	execPath, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	m := &mintingSite{key: key, git: &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(execPath)),
		"git-http-backend"), Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=app"}}}
	site := secureSiteOf(t, m)
	s := newServerWith(t, fmt.Sprintf("containers: {network: {private: %s}}\n", site.places),
		"SSL_CERT_FILE="+site.authority)
	secrets, err := json.Marshal([]map[string]any{
		{"type": "oauth2_client_credentials", "domain": site.host, "name": "API_TOKEN", "client_id": "me",
			"value": "client-secret-canary", "token_url": "https://" + site.at + "/oauth/token"},
		{"type": "github_app", "domain": site.host, "name": "GITHUB_TOKEN", "app_id": "123", "installation_id": "456",
			"value": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
				Bytes: x509.MarshalPKCS1PrivateKey(key)})), "api_url": "https://" + site.at + "/api/v3",
			"repositories": []string{"tool"}, "permissions": map[string]string{"contents": "write"}}})
	if err != nil {
		t.Fatal(err)
	}
	var made struct{ ID string }
	got, err := s.ask("", "", "POST", "/v1/containers", json.RawMessage(fmt.Sprintf(
		`{"name":"c","network_policy":{"type":"allowlist","allowed_domains":%s,"domain_secrets":%s}}`, site.places, secrets)))
	if err != nil || json.Unmarshal([]byte(got.text), &made) != nil || made.ID == "" ||
		strings.Contains(got.text, "canary") || strings.Contains(got.text, "PRIVATE") {
		t.Fatalf("got %d %s, %v", got.status, got.text, err)
	}
	all := ""
	in := func(script string) string {
		t.Helper()
		out := s.in(made.ID, "{ "+script+"; } 2>&1 || true")
		all += out
		return out
	}
	api := "curl -s -m 60 -H \"Authorization: Bearer $API_TOKEN\" -w ' %{http_code}' https://" + site.at + "/api"
	for range 3 {
		if out := in(api); !strings.HasPrefix(out, "fine, you sent secret-api_token-") || !strings.HasSuffix(out, " 200") {
			t.Fatalf("the API: got %s", out)
		}
	}
	if n := m.minted.Load(); n != 1 {
		t.Errorf("%d tokens for 3 requests", n)
	}
	git := "export HOME=/tmp; git config --global url.\"https://x-access-token:$GITHUB_TOKEN@" + site.at +
		"/\".insteadOf https://" + site.at + "/ && git config --global user.name me && git config --global user.email me@example.com; "
	if out := in(git + "cd /tmp && git clone -q https://" + site.at + "/me/tool.git && cd tool && " +
		"head -c 3000000 /dev/urandom > large && git add . && git commit -qm first && git push -q origin HEAD:main && echo pushed"); !strings.
		HasSuffix(out, "pushed\n") {
		t.Fatalf("git: got %s", out)
	}
	if out := in(git + "cd /tmp && git clone -q https://" + site.at +
		"/me/tool.git again && cmp tool/large again/large && echo same"); !strings.HasSuffix(out, "same\n") {
		t.Errorf("git clone: got %s", out)
	}
	s.kill()
	s.start()
	if out := in(api); !strings.HasSuffix(out, " 200") {
		t.Errorf("after the server was killed: got %s", out)
	}
	s.kill()
	s.start()
	m.away.Store(true)
	if out := in(api); !strings.Contains(out, "egress: no token for the secret API_TOKEN: ") || !strings.HasSuffix(out,
		" 503") {
		t.Errorf("while the endpoint is away: got %s", out)
	}
	all += in("env; cat /tmp/.gitconfig /tmp/tool/.git/config")
	if strings.Contains(all, "canary") || strings.Contains(all, "PRIVATE") {
		t.Errorf("the sandbox has a secret: %s", all)
	}
	file := filepath.Join(t.TempDir(), "secrets.json")
	if err := os.WriteFile(file, secrets, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, err := s.berth("create", "d", "--secret-file", file); err != nil {
		t.Errorf("berth create --secret-file: %v %s%s", err, out, errs)
	} else if env := s.in("d", "env"); !strings.Contains(env, "GITHUB_TOKEN=secret-github_token-") ||
		!strings.Contains(env, "API_TOKEN=secret-api_token-") {
		t.Errorf("the environment is %s", env)
	}
	for field, secret := range map[string]string{
		"token_url": `"type":"oauth2_client_credentials","client_id":"a","value":"abcd","token_url":"http://login.example.com/"`,
		"client_id": `"type":"oauth2_client_credentials","value":"abcd","token_url":"https://login.example.com/"`,
		"'value'":   `"value":"abcd","token_url":"https://login.example.com/"`,
		"PEM":       `"type":"github_app","app_id":"1","installation_id":"2","value":"abcd"`,
		"regions":   `"type":"aws_sigv4","access_key_id":"AKIA","value":"abcd","services":["s3"]`,
	} {
		got, err := s.ask("", "", "POST", "/v1/containers", json.RawMessage(`{"name":"d","network_policy":{"type":"allowlist",`+
			`"allowed_domains":["a.example"],"domain_secrets":[{"domain":"a.example","name":"A",`+secret+`}]}}`))
		if err != nil || got.status != 400 || !strings.Contains(got.text, field) {
			t.Errorf("%s: got %d %s, %v", secret, got.status, got.text, err)
		}
	}
}
