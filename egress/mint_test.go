package egress

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-run/berth/egress/mint"
)

// mintWorld is a world whose gate gets tokens for api.example.com, and the host, which echoes what it gets.
func mintWorld(t *testing.T, endpoint http.HandlerFunc) (w *world, c *http.Client, placeholder string) {
	w, c, _ = secretWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/refuse") {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, password, _ := r.BasicAuth()
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s|%s|%s|%s", r.Header.Get("Authorization"), password, r.URL.RawQuery, body)
	})
	s := httptest.NewServer(endpoint)
	t.Cleanup(s.Close)
	placeholder = NewPlaceholder("TOKEN")
	grant := &mint.Grant{Client: &mint.Client{ID: "me", Secret: "client-secret-canary", URL: s.URL}}
	source := &mint.Source{Grant: grant, Client: s.Client()}
	w.gate.Tokens = func(Secret) *mint.Source { return source }
	w.gate.Secrets = []Secret{{Domain: "api.example.com", Name: "TOKEN", Placeholder: placeholder, Mint: grant}}
	return w, c, placeholder
}

func TestMintedToken(t *testing.T) {
	var minted atomic.Int64
	w, c, placeholder := mintWorld(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"token-canary-%d","expires_in":600}`, minted.Add(1))
	})
	const at = "https://api.example.com/"
	if _, body := get(t, c, at); body != "|||" || minted.Load() != 0 {
		t.Errorf("without the placeholder: got %q, %d tokens", body, minted.Load())
	}
	if _, body := get(t, c, at, "Authorization", "Bearer "+placeholder); body != "Bearer "+placeholder+"|||" {
		t.Errorf("got %q", body) // the token is masked in the echo
	}
	basic := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + placeholder))
	if _, body := get(t, c, at, "Authorization", "Basic "+basic); strings.Contains(body, "canary") || !strings.Contains(body,
		"|"+placeholder+"|") {
		t.Errorf("basic: got %q", body)
	}
	// In the URL or in a body it stays a placeholder: hosts log these.
	if _, body := get(t, c, at+"?token="+placeholder, "Authorization", "Bearer "+placeholder); !strings.HasSuffix(body,
		"|token="+placeholder+"|") {
		t.Errorf("query: got %q", body)
	}
	if _, body := get(t, c, at+"refuse", "Authorization", "Bearer "+placeholder); strings.Contains(body, "canary") {
		t.Errorf("refused: got %q", body)
	}
	if n := minted.Load(); n != 1 {
		t.Errorf("%d tokens were minted", n)
	}
	if key := w.gate.fillsFor("b.example.com"); key.reads() {
		t.Errorf("another host gets tokens: %+v", key)
	}
	c.CloseIdleConnections()
	if f := w.last(); fmt.Sprint(f.Secrets) != "[TOKEN]" || strings.Contains(fmt.Sprint(f), "canary") {
		t.Errorf("the flow is %+v", f)
	}
}

// Without a token no request reaches the host, and the sandbox learns why.
func TestNoMintedToken(t *testing.T) {
	for want, endpoint := range map[int]http.HandlerFunc{
		http.StatusBadGateway: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"error":"invalid_client","error_description":"client-secret-canary"}`)
		},
		http.StatusServiceUnavailable: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		_, c, placeholder := mintWorld(t, endpoint)
		for range 2 {
			status, body := get(t, c, "https://api.example.com/", "Authorization", "Bearer "+placeholder)
			if status != want || !strings.HasPrefix(body, "egress: no token for the secret TOKEN: ") ||
				strings.Contains(body, "canary") {
				t.Errorf("got %d %s", status, body)
			}
		}
		if status, body := get(t, c, "https://api.example.com/"); status != 200 {
			t.Errorf("a request that needs no token: got %d %s", status, body)
		}
	}
}
