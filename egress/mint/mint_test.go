package mint

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// A clock is set by hand.
type clock struct{ seconds atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(1_800_000_000+c.seconds.Load(), 0) }

func noRedirects() *http.Client {
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// endpoint serves an OAuth 2 token endpoint that checks its client.
func endpoint(t *testing.T, answer http.HandlerFunc) (*Grant, *atomic.Int64) {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		id, secret, _ := r.BasicAuth()
		if id != "me" || secret != "client-secret" || r.FormValue("grant_type") != "client_credentials" ||
			r.FormValue("scope") != "read write" || r.FormValue("audience") != "api" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":"invalid_client","error_description":%q}`, secret)
			return
		}
		asked.Add(1)
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return &Grant{Client: &Client{ID: "me", Secret: "client-secret", URL: s.URL, Scopes: []string{"read", "write"},
		Audience: "api"}}, &asked
}

// A token is got once for all who wait, used until it ends soon, and then replaced while it is used.
func TestToken(t *testing.T) {
	release := make(chan struct{})
	var n atomic.Int64
	grant, asked := endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		<-release
		fmt.Fprintf(w, `{"access_token":"my-token-%d","token_type":"bearer","expires_in":6000}`, n.Add(1))
	})
	// The lifetime counts from the real clock.
	var late atomic.Int64
	s := &Source{Grant: grant, Client: noRedirects(),
		Now: func() time.Time { return time.Now().Add(time.Duration(late.Load()) * time.Second) }}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := s.Token(gone); err != context.Canceled {
		t.Fatalf("one who does not wait: got %v", err)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if token, err := s.Token(t.Context()); err != nil || token != "my-token-1" {
				t.Errorf("got %q, %v", token, err)
			}
		})
	}
	close(release)
	all.Wait()
	if got := asked.Load(); got != 1 {
		t.Errorf("%d requests for 20 who wait", got)
	}
	late.Store(5950)
	if token, err := s.Token(t.Context()); err != nil || token != "my-token-1" {
		t.Errorf("a token that ends soon: got %q, %v", token, err)
	}
	s.mu.Lock()
	pending := s.pending
	s.mu.Unlock()
	if pending != nil {
		<-pending
	}
	if token, err := s.Token(t.Context()); err != nil || token != "my-token-2" {
		t.Errorf("after it was replaced: got %q, %v", token, err)
	}
	s.Refused("my-token-2")
	if token, _ := s.Token(t.Context()); token != "my-token-2" {
		t.Errorf("a young token was dropped: got %q", token)
	}
	late.Store(5990)
	s.Refused("my-token-2")
	if token, _ := s.Token(t.Context()); token != "my-token-3" {
		t.Errorf("a refused token: got %q", token)
	}
}

// An endpoint that refuses or fails is asked again only after a while, and its text stays with the server.
func TestNoToken(t *testing.T) {
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		refused bool
		want    string
	}{
		"refused": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			io.WriteString(w, `{"error":"invalid_scope","error_description":"client-secret"}`)
		}, true, "invalid_scope"},
		"another error": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			io.WriteString(w, `{"error":"client-secret"}`)
		}, true, "answered 400"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
		}, true, "answered 307"},
		"away":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, false, "cannot be reached"},
		"hung up":     {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false, "cannot be reached"},
		"no token":    {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{}`) }, false, ""},
		"short token": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"access_token":"a"}`) }, true, "without a token"},
		"two lines": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"access_token":"token-1\r\nX-Admin: yes"}`)
		}, true, "without a token"},
		"not a bearer's": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"access_token":"token-long","token_type":"mac"}`)
		}, true, "no bearer's"},
	} {
		grant, asked := endpoint(t, c.answer)
		now := &clock{}
		s := &Source{Grant: grant, Client: noRedirects(), Now: now.now}
		for range 3 {
			_, err := s.Token(t.Context())
			failed, ok := err.(*Error)
			if !ok || failed.Refused != c.refused || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(),
				"client-secret") {
				t.Errorf("%s: got %v", name, err)
			}
		}
		before := asked.Load()
		now.seconds.Store(60)
		if _, err := s.Token(t.Context()); err == nil || asked.Load() == before {
			t.Errorf("%s: not asked again after a while: %v", name, err)
		}
	}
	grant, _ := endpoint(t, nil)
	grant.Client.Secret = "wrong-secret"
	if _, err := grant.Fetch(t.Context(), noRedirects(), time.Now()); err == nil || !strings.Contains(err.Error(),
		"invalid_client") || strings.Contains(err.Error(), "wrong-secret") {
		t.Errorf("another secret: got %v", err)
	}
}

// GitHub checks the claim of an App as its documentation says.
func TestApp(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	now, asked := &clock{}, 0
	github := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		token, err := jwt.ParseSigned(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "),
			[]jose.SignatureAlgorithm{jose.RS256})
		var claims jwt.Claims
		if err == nil {
			err = token.Claims(key.Public(), &claims)
		}
		body, _ := io.ReadAll(r.Body)
		if err != nil || claims.Issuer != "123" || claims.IssuedAt.Time().After(now.now()) ||
			claims.Expiry.Time().Sub(claims.IssuedAt.Time()) > 10*time.Minute || r.Method != "POST" ||
			r.URL.Path != "/app/installations/456/access_tokens" ||
			string(body) != `{"repositories":["tool"],"permissions":{"contents":"read"}}` {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusCreated)
		json.NewEncoder(w).Encode(map[string]any{"token": fmt.Sprintf("ghs_%06d", asked),
			"expires_at": now.now().Add(time.Hour).UTC().Format(time.RFC3339)})
	}))
	defer github.Close()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range []*pem.Block{{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
		{Type: "PRIVATE KEY", Bytes: der}} {
		asked = 0
		now.seconds.Store(0)
		app := &App{ID: "123", Installation: "456", Key: string(pem.EncodeToMemory(block)), URL: github.URL,
			Repositories: []string{"tool"}, Permissions: map[string]string{"contents": "read"}}
		s := &Source{Grant: &Grant{App: app}, Client: noRedirects(), Now: now.now}
		for _, at := range []int64{0, 1800} {
			now.seconds.Store(at)
			if token, err := s.Token(t.Context()); err != nil || token != "ghs_000001" {
				t.Errorf("at %d: got %q, %v", at, token, err)
			}
		}
		now.seconds.Store(3601)
		if token, err := s.Token(t.Context()); err != nil || token != "ghs_000002" {
			t.Errorf("after its end: got %q, %v", token, err)
		}
		app.Installation = "../457"
		if _, err := s.Grant.Fetch(t.Context(), noRedirects(), now.now()); err == nil || !strings.Contains(err.Error(),
			"answered 401") {
			t.Errorf("another installation: got %v", err)
		}
	}
}
