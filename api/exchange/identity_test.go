package exchange

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// keyring is a store's keys; nil err means that the store works.
type keyring struct {
	store.Keys
	keys  []*berth.Key
	err   error
	lists int
}

func (k *keyring) add(secret string, p berth.ProjectID) {
	k.keys = append(k.keys, &berth.Key{ID: "key_1", Project: p, Hash: sha256.Sum256([]byte(secret))})
}

func (k *keyring) KeyByHash(_ context.Context, hash [32]byte) (*berth.Key, error) {
	for _, key := range k.keys {
		if key.Hash == hash {
			return key, k.err
		}
	}
	return nil, errors.Join(k.err, store.ErrNotFound)
}

func (k *keyring) KeyOf(ctx context.Context, c berth.Caller) (*berth.Key, error) {
	all, err := k.ListKeys(ctx)
	for _, key := range all {
		if key.ID == c.Key && key.Project == c.Project && key.Session == c.Session {
			return key, nil
		}
	}
	return nil, cmp.Or(err, error(berth.ErrNotFound))
}

func (k *keyring) ListKeys(context.Context) ([]*berth.Key, error) {
	k.lists++
	return k.keys, k.err
}

// empty is a handler that answers with an empty object.
func empty(x *Exchange, _ *http.Request, _ berth.Caller) error {
	return x.JSON(http.StatusOK, struct{}{})
}

func door(t *testing.T, keys store.Keys) http.Handler {
	return handleWith(Options{Keys: keys, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}, empty)
}

// ask sends GET /v1/models with the given headers from an address to a host.
func ask(h http.Handler, from, host string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "http://"+host+"/v1/models", nil)
	r.RemoteAddr, r.Host = from, host
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestExpiredKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := &keyring{}
		keys.add("sk-berth-brief", "proj_a")
		keys.keys[0].ExpiresAt = time.Now().Add(time.Minute).Unix()
		h := door(t, keys)
		ask := func() *httptest.ResponseRecorder {
			return ask(h, "192.0.2.7:5", "berth.example", "Authorization", "Bearer sk-berth-brief")
		}
		if w := ask(); w.Code != 200 {
			t.Errorf("before its end: got %d %s, want 200", w.Code, w.Body)
		}
		time.Sleep(time.Minute)
		if w := ask(); w.Code != 401 || !strings.Contains(w.Body.String(), "has expired") {
			t.Errorf("after its end: got %d %s, want 401 and why", w.Code, w.Body)
		}
	})
}

func TestIdentityWithKeys(t *testing.T) {
	keys := &keyring{}
	keys.add("sk-berth-good", "proj_a")
	h := door(t, keys)
	const near, far, host = "127.0.0.1:5", "192.0.2.7:5", "berth.example"
	tests := []struct {
		name, from, authorization string
		status                    int
		message                   string
	}{
		{"good", far, "Bearer sk-berth-good", 200, ""},
		{"scheme of another case", far, "bearer sk-berth-good", 200, ""},
		{"unknown", far, "Bearer sk-berth-bad", 401, "Incorrect API key provided"},
		{"unknown from near", near, "Bearer sk-berth-bad", 401, "Incorrect API key provided"},
		{"missing", far, "", 401, "You didn't provide an API key"},
		{"missing from near", near, "", 401, "You didn't provide an API key"},
		{"another scheme", far, "Basic sk-berth-good", 401, "You didn't provide an API key"},
		{"the hash itself", far, "Bearer " + string(keys.keys[0].Hash[:]), 401, "Incorrect API key provided"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := ask(h, tt.from, host, "Authorization", tt.authorization, "OpenAI-Project", "proj_b",
				"OpenAI-Organization", "org_b", "Origin", "http://page.example")
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.message) {
				t.Errorf("got %d %s, want %d %s", w.Code, w.Body, tt.status, tt.message)
			}
			if bytes := w.Body.String(); strings.Contains(bytes, "sk-berth") {
				t.Errorf("the answer repeats a key: %s", bytes)
			}
		})
	}
	w := ask(h, far, host, "Authorization", "Bearer sk-berth-bad")
	if !strings.Contains(w.Body.String(), `"code":"invalid_api_key"`) ||
		w.Header().Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("got %s, %v, want code invalid_api_key and WWW-Authenticate", w.Body, w.Header())
	}
}

// Without keys only a program on the machine is served: no other machine, no client behind
// a proxy, and no web page in a browser on the machine, whether it posts across origins or
// has its own name resolve to 127.0.0.1.
func TestIdentityWithoutKeys(t *testing.T) {
	h := door(t, &keyring{})
	const near, host = "127.0.0.1:5", "127.0.0.1:8080"
	tests := []struct {
		name, from, host string
		headers          []string
		status           int
		says             string
	}{
		{"a program", near, host, nil, 200, ""},
		{"with any token", near, host, []string{"Authorization", "Bearer whatever"}, 200, ""},
		{"by name", near, "localhost:8080", nil, 200, ""},
		{"without a port", near, "localhost", nil, 200, ""},
		{"over IPv6", "[::1]:5", "[::1]:8080", nil, 200, ""},
		{"over IPv6 without a port", "[::1]:5", "[::1]", nil, 200, ""},
		{"over mapped IPv4", "[::ffff:127.0.0.1]:5", "127.0.0.2:8080", nil, 200, ""},
		{"a page of the server's own", near, host,
			[]string{"Origin", "http://127.0.0.1:8080", "Sec-Fetch-Site", "same-origin"}, 200, ""},
		{"an address typed into a browser", near, host, []string{"Sec-Fetch-Site", "none"}, 200, ""},

		{"another machine", "192.0.2.7:5", host, nil, 401, "berth key create"},
		{"another machine with any token", "192.0.2.7:5", host, []string{"Authorization", "Bearer x"}, 401,
			"berth key create"},
		{"no address", "@", host, nil, 401, "berth key create"},
		{"another machine that claims to be near", "192.0.2.7:5", host, []string{"X-Forwarded-For", "127.0.0.1"}, 401,
			"berth key create"},
		{"behind a proxy", near, host, []string{"X-Forwarded-For", "192.0.2.7"}, 401, "berth key create"},
		{"behind a proxy with the standard header", near, host, []string{"Forwarded", "for=192.0.2.7"}, 401,
			"berth key create"},

		{"a name that was rebound", near, "evil.example:8080", nil, 403, "host_not_allowed"},
		{"a name like localhost", near, "localhost.evil.example", nil, 403, "host_not_allowed"},
		{"a name with an address", near, "127.0.0.1.evil.example", nil, 403, "host_not_allowed"},
		{"an outer address", near, "192.0.2.1:8080", nil, 403, "host_not_allowed"},
		{"no name", near, "", nil, 403, "host_not_allowed"},
		{"a page elsewhere", near, host, []string{"Origin", "https://evil.example"}, 403, "origin_not_allowed"},
		{"a page in a sandboxed frame", near, host, []string{"Origin", "null"}, 403, "origin_not_allowed"},
		{"a page of another local server", near, host, []string{"Origin", "http://127.0.0.1:3000"}, 403,
			"origin_not_allowed"},
		{"an image in a page elsewhere", near, host, []string{"Sec-Fetch-Site", "cross-site"}, 403,
			"origin_not_allowed"},
		{"an image in a page of the same site", near, host, []string{"Sec-Fetch-Site", "same-site"}, 403,
			"origin_not_allowed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := ask(h, tt.from, tt.host, tt.headers...)
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.says) {
				t.Errorf("got %d %s, want %d %s", w.Code, w.Body, tt.status, tt.says)
			}
			if w.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Error("the answer may be read by other origins")
			}
		})
	}
}

// Another process creates the first key. The server requires keys within a second, and at
// once if the store fails.
func TestFirstKeyClosesTheDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := &keyring{}
		h := door(t, keys)
		const near, host = "127.0.0.1:5", "localhost"
		for range 5 {
			if w := ask(h, near, host); w.Code != http.StatusOK {
				t.Fatalf("got %d without keys, want 200", w.Code)
			}
		}
		if keys.lists != 1 {
			t.Errorf("got %d looks into the store for five requests, want 1", keys.lists)
		}
		keys.add("sk-berth-first", "proj_a")
		if w := ask(h, near, host, "Authorization", "Bearer sk-berth-first"); w.Code != http.StatusOK {
			t.Errorf("got %d with the new key, want 200 at once", w.Code)
		}
		time.Sleep(openFor)
		if w := ask(h, near, host); w.Code != http.StatusUnauthorized {
			t.Errorf("got %d a second after the first key, want 401", w.Code)
		}
		time.Sleep(openFor)
		keys.keys = nil
		if w := ask(h, near, host); w.Code != http.StatusUnauthorized {
			t.Errorf("got %d after the last key was removed, want 401", w.Code)
		}
	})
}

// A server whose store fails serves no request.
func TestBrokenStoreClosesTheDoor(t *testing.T) {
	h := door(t, &keyring{err: errors.New("disk on fire")})
	for _, authorization := range []string{"", "Bearer sk-berth-first"} {
		if w := ask(h, "127.0.0.1:5", "localhost", "Authorization",
			authorization); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "fire") {
			t.Errorf("got %d %s from a broken store, want 500 and no word of why", w.Code, w.Body)
		}
	}
}

// The last key of a server that was started with one is removed before the first request.
func TestRemovedKeysOpenNothing(t *testing.T) {
	h := handleWith(Options{Closed: true, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}, empty)
	if w := ask(h, "127.0.0.1:5", "localhost"); w.Code != http.StatusUnauthorized {
		t.Errorf("got %d %s, want 401", w.Code, w.Body)
	}
}

// A request with a header that proxies add is not regarded as local.
func TestProxiesAreSeen(t *testing.T) {
	h := door(t, &keyring{})
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port",
		"X-Forwarded-Server", "X-Forwarded", "Forwarded", "Via",
		"X-Real-IP", "X-Client-IP", "True-Client-IP", "CF-Connecting-IP", "CF-Ray", "X-Envoy-External-Address",
		"X-Original-Host", "Fly-Client-IP", "CDN-Loop", "Tailscale-User-Login"} {
		if w := ask(h, "127.0.0.1:5", "localhost", name, "x"); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: got %d, want 401", name, w.Code)
		}
	}
}
