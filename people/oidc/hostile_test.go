package oidc

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/people"
	"github.com/berth-run/berth/store/sqlite"
)

// A hostile is a provider that a test lets answer as it likes.
type hostile struct {
	*httptest.Server
	mu sync.Mutex

	issuer    string // in the description; default: its address
	key       *rsa.PrivateKey
	kid       string
	algorithm string
	claims    map[string]any
	form      url.Values                               // of the last request of a token
	instead   func(http.ResponseWriter, *http.Request) // answers all requests, if it is not nil
}

func newHostile(t *testing.T) *hostile {
	h := &hostile{kid: "first", algorithm: "RS256", key: newKey(t), claims: map[string]any{}}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	h.issuer = h.URL
	t.Cleanup(h.Close)
	return h
}

func newKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func text(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }

func (h *hostile) serve(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.instead != nil {
		h.instead(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		answer = map[string]any{"issuer": h.issuer, "authorization_endpoint": h.URL + "/authorize",
			"token_endpoint": h.URL + "/token", "jwks_uri": h.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"}}
	case "/keys":
		answer = map[string]any{"keys": []any{map[string]any{"kty": "RSA", "kid": h.kid, "use": "sig", "alg": "RS256",
			"n": text(h.key.N.Bytes()), "e": text(big.NewInt(int64(h.key.E)).Bytes())}}}
	case "/token":
		_ = r.ParseForm()
		h.form = r.PostForm
		answer = map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": h.token()}
	default:
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// token returns an ID token with the claims, signed as the algorithm says.
func (h *hostile) token() string {
	head, _ := json.Marshal(map[string]string{"alg": h.algorithm, "kid": h.kid})
	body, _ := json.Marshal(h.claims)
	signed := text(head) + "." + text(body)
	if h.algorithm == "none" {
		return signed + "."
	}
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, h.key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	return signed + "." + text(signature)
}

// change changes the provider between requests.
func (h *hostile) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

var theTime = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// newDoor returns the door of a server that trusts h, with the log that it writes.
func newDoor(t *testing.T, h *hostile) (*Door, *people.Service, *strings.Builder) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	now := func() time.Time { return theTime }
	service := people.New(people.Options{Objects: db, Issuer: h.URL, Life: time.Hour, Now: now, Grants: []people.Grant{
		{Group: "engineers", Project: "proj_a", Role: berth.RoleMaintainer}}})
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	p := NewProvider(Options{Issuer: h.URL, ClientID: "berth", ClientSecret: "the-client-secret",
		RedirectURL: "http://127.0.0.1:1" + CallbackPath, Scopes: []string{"openid"}, GroupsClaim: "groups", Log: logger,
		Now: now})
	return &Door{Provider: p, People: service, Seal: seal.New([32]byte{1}), Title: "Test", URL: "http://127.0.0.1:1",
		Log: logger, Now: now}, service, &log
}

// begin begins a sign-in and returns the query of the provider's redirect, the nonce and the cookie.
func begin(t *testing.T, d *Door) (query url.Values, nonce, challenge, cookie string) {
	t.Helper()
	location, cookie, err := d.Start(t.Context(), "/console/responses")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(location)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if q.Get("code_challenge_method") != "S256" || q.Get("redirect_uri") != "http://127.0.0.1:1"+CallbackPath {
		t.Fatalf("got %s", location)
	}
	return url.Values{"code": {"c"}, "state": {q.Get("state")}}, q.Get("nonce"), q.Get("code_challenge"), cookie
}

// good returns the claims of a good token.
func good(h *hostile, nonce string) map[string]any {
	return map[string]any{"iss": h.URL, "aud": "berth", "sub": "1", "email": "ada@example.com", "nonce": nonce,
		"groups": []string{"engineers"}, "iat": theTime.Unix(), "exp": theTime.Add(time.Minute).Unix()}
}

// A token is accepted only from the issuer, for this client, with a signature of its present keys, in time, and for
// the sign-in that has asked for it.
func TestTokens(t *testing.T) {
	h := newHostile(t)
	d, _, log := newDoor(t, h)
	at := func(d time.Duration) int64 { return theTime.Add(d).Unix() }
	for name, test := range map[string]struct {
		claims map[string]any // in place of the good ones
		change func()
		ok     bool
	}{
		"good":                 {ok: true},
		"other issuer":         {claims: map[string]any{"iss": "https://evil.example"}},
		"issuer with a slash":  {claims: map[string]any{"iss": h.URL + "/"}},
		"other audience":       {claims: map[string]any{"aud": "another"}},
		"no audience":          {claims: map[string]any{"aud": nil}},
		"several audiences":    {claims: map[string]any{"aud": []string{"berth", "another"}}},
		"azp of another":       {claims: map[string]any{"aud": []string{"berth", "x"}, "azp": "x"}},
		"azp of ours":          {claims: map[string]any{"aud": []string{"berth", "x"}, "azp": "berth"}, ok: true},
		"no subject":           {claims: map[string]any{"sub": ""}},
		"expired":              {claims: map[string]any{"exp": at(-skew)}},
		"expired within skew":  {claims: map[string]any{"exp": at(1 - skew + time.Second)}, ok: true},
		"no expiry":            {claims: map[string]any{"exp": nil}},
		"issued in the future": {claims: map[string]any{"iat": at(skew + time.Second)}},
		"a fast clock":         {claims: map[string]any{"iat": at(skew), "nbf": at(skew)}, ok: true},
		"not yet valid":        {claims: map[string]any{"nbf": at(skew + time.Second)}},
		"other nonce":          {claims: map[string]any{"nonce": "replayed"}},
		"no nonce":             {claims: map[string]any{"nonce": nil}},
		"groups of numbers":    {claims: map[string]any{"groups": []int{1}}},
		"groups as an object":  {claims: map[string]any{"groups": map[string]string{"a": "b"}}},
		"one group as text":    {claims: map[string]any{"groups": "engineers"}, ok: true},
		"the group of all":     {claims: map[string]any{"groups": []string{"*"}}},
		"alg none":             {change: func() { h.algorithm = "none" }},
		"alg HS256":            {change: func() { h.algorithm = "HS256" }},
		"another key":          {change: func() { h.key, h.kid = newKey(t), "first" }, ok: true}, // a rotation that reuses the name
		"a rotated key":        {change: func() { h.key, h.kid = newKey(t), "second" }, ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			query, nonce, challenge, cookie := begin(t, d)
			h.change(func() {
				h.algorithm = "RS256"
				h.claims = good(h, nonce)
				maps.Copy(h.claims, test.claims)
				for claim, value := range h.claims {
					if value == nil {
						delete(h.claims, claim)
					}
				}
				if test.change != nil {
					test.change()
				}
			})
			s, next, err := d.Finish(t.Context(), query, cookie)
			if (err == nil) != test.ok {
				t.Fatalf("got %v, %v; log: %s", s, err, log)
			}
			if err == nil && (next != "/console/responses" || s.Person.Email != "ada@example.com" || len(s.Tokens) != 1) {
				t.Errorf("got %+v, %s", s, next)
			}
			sum := sha256.Sum256([]byte(h.form.Get("code_verifier")))
			if text(sum[:]) != challenge {
				t.Error("the verifier of PKCE does not belong to the challenge")
			}
		})
	}
	for _, secret := range []string{"the-client-secret", people.TokenPrefix} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log contains %s: %s", secret, log)
		}
	}
}

// An answer with a key that the provider does not publish is refused.
func TestForeignKey(t *testing.T) {
	h := newHostile(t)
	d, _, _ := newDoor(t, h)
	query, nonce, _, cookie := begin(t, d)
	published := h.key
	forged := newKey(t)
	h.change(func() {
		h.claims = good(h, nonce)
		h.instead = func(w http.ResponseWriter, r *http.Request) {
			h.instead = nil
			h.key = forged
			raw, _ := json.Marshal(map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": h.token()})
			h.key = published
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(raw)
		}
	})
	if s, _, err := d.Finish(t.Context(), query, cookie); err == nil {
		t.Errorf("got %+v", s)
	}
}

// The provider's answer counts only in the browser that began the sign-in, once for its state, and for ten minutes.
func TestState(t *testing.T) {
	h := newHostile(t)
	d, _, _ := newDoor(t, h)
	query, nonce, _, cookie := begin(t, d)
	h.change(func() { h.claims = good(h, nonce) })
	_, _, _, other := begin(t, d)
	last := cookie[:len(cookie)-2] + "AA"
	for name, bad := range map[string]string{"no cookie": "", "of another sign-in": other, "forged": last, "garbage": "%%",
		"short": "AA"} {
		if _, _, err := d.Finish(t.Context(), query, bad); err == nil || !strings.Contains(err.Error(), "in this browser") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, bad := range []url.Values{{"code": {"c"}}, {"code": {"c"}, "state": {"x"}}} {
		if _, _, err := d.Finish(t.Context(), bad, cookie); err == nil {
			t.Errorf("%v: got no error", bad)
		}
	}
	mixed := url.Values{"state": query["state"], "code": query["code"], "iss": {"https://evil.example"}}
	_, _, err := d.Finish(t.Context(), mixed, cookie)
	h.change(func() {
		if err == nil || h.form != nil {
			t.Errorf("the answer of another provider: got %v; the code was sent: %v", err, h.form != nil)
		}
	})
	refused := url.Values{"state": query["state"], "error": {"access_denied\nlevel=ERROR"}}
	if _, _, err := d.Finish(t.Context(), refused, cookie); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("a refusal: got %v", err)
	}
	now := d.Now
	d.Now = func() time.Time { return now().Add(flowLife) }
	if _, _, err := d.Finish(t.Context(), query, cookie); err == nil {
		t.Error("a sign-in does not expire")
	}
	d.Now = now
	if _, _, err := d.Finish(t.Context(), query, cookie); err != nil {
		t.Errorf("the right cookie: got %v", err)
	}
}

// A provider that is away, lies, never ends or redirects is an error for the person, and the next attempt works.
func TestAway(t *testing.T) {
	h := newHostile(t)
	d, _, log := newDoor(t, h)
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"away":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"no JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		},
		"endless": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat(" ", 64<<10)); err != nil {
					return
				}
			}
		},
		"another issuer": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"issuer":"https://evil.example","jwks_uri":"x"}`)
		},
	} {
		h.change(func() { h.instead = answer })
		if _, _, err := d.Start(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	h.change(func() { h.instead = nil })
	if _, _, err := d.Start(t.Context(), ""); err != nil {
		t.Errorf("after all: got %v; log: %s", err, log)
	}
}

// What groups give ends with them: a person whose groups vanish is refused, and the tokens of earlier sessions too.
func TestGroupsVanish(t *testing.T) {
	h := newHostile(t)
	d, service, _ := newDoor(t, h)
	signIn := func(groups any) (*people.Session, error) {
		query, nonce, _, cookie := begin(t, d)
		h.change(func() {
			h.claims = good(h, nonce)
			if h.claims["groups"] = groups; groups == nil {
				delete(h.claims, "groups")
			}
		})
		s, _, err := d.Finish(t.Context(), query, cookie)
		return s, err
	}
	first, err := signIn([]string{"engineers", "sales"})
	if err != nil {
		t.Fatal(err)
	}
	keys := service.Keys(noKeys{})
	hash := sha256.Sum256([]byte(first.Tokens[0].Secret))
	if k, err := keys.KeyByHash(t.Context(), hash); err != nil || k.Project != "proj_a" ||
		string(k.ID) != first.Person.ID {
		t.Errorf("got %+v, %v", k, err)
	}
	if _, err := signIn(nil); err == nil || !strings.Contains(err.Error(), "none of your groups") {
		t.Errorf("without groups: got %v", err)
	}
	if k, err := keys.KeyByHash(t.Context(), hash); err == nil {
		t.Errorf("a former session: got %+v", k)
	}
}
