package oidc

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/berth-run/berth/people"
)

// CallbackPath is the path that the provider redirects browsers to.
const CallbackPath = "/console/sign-in/callback"

// flowLife is how long a person may take to sign in.
const flowLife = 10 * time.Minute

// A flow is a sign-in under way.
type flow struct {
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"`
	Next     string    `json:"next"`
	Until    time.Time `json:"until"`
}

// A Door signs people in and out. It is safe for concurrent use.
type Door struct {
	Provider *Provider
	People   *people.Service
	Seal     cipher.AEAD // of the cookie of a sign-in under way
	Title    string      // of the provider, for people
	URL      string      // of this server, as browsers reach it
	Log      *slog.Logger
	Now      func() time.Time

	// Admit refuses sign-ins while the server takes none. nil admits all.
	Admit func() error
}

// Callback returns the path that the provider redirects browsers to.
func (d *Door) Callback() string { return CallbackPath }

// Name returns the name of the provider.
func (d *Door) Name() string { return d.Title }

// Origin returns the address at which browsers reach the server, without a path.
func (d *Door) Origin() string { return d.URL }

// sealed separates the cookie of a sign-in from other texts of the same seal.
var sealed = []byte("sign-in")

// Start begins a sign-in. The browser must go to location and keep the cookie.
func (d *Door) Start(ctx context.Context, next string) (location, cookie string, err error) {
	if d.Admit != nil && d.Admit() != nil {
		return "", "", &people.Refusal{Status: 503, Message: "This server signs nobody in until its audit record has reached its target. Ask its operator."}
	}
	f := flow{rand.Text(), rand.Text(), oauth2.GenerateVerifier(), next, d.Now().Add(flowLife)}
	if location, err = d.Provider.authorizeURL(ctx, f); err != nil {
		d.Log.Warn("failed to begin a sign-in", "err", err)
		return "", "", &people.Refusal{Status: 503, Message: "The identity provider cannot be reached now. Try again in a moment, or sign in with a key. The server's log has the reason."}
	}
	raw, err := json.Marshal(f)
	if err != nil {
		return "", "", fmt.Errorf("encode sign-in: %w", err)
	}
	nonce := make([]byte, d.Seal.NonceSize())
	rand.Read(nonce) // never fails
	return location, base64.RawURLEncoding.EncodeToString(d.Seal.Seal(nonce, nonce, raw, sealed)), nil
}

// open returns the sign-in of a cookie.
func (d *Door) open(cookie string) (f flow, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(cookie)
	if err != nil || len(raw) < d.Seal.NonceSize() {
		return f, false
	}
	n := d.Seal.NonceSize()
	clear, err := d.Seal.Open(nil, raw[:n], raw[n:], sealed)
	if err != nil || json.Unmarshal(clear, &f) != nil {
		return f, false
	}
	return f, d.Now().Before(f.Until)
}

// Finish ends a sign-in with what the provider has sent and the cookie of the browser.
func (d *Door) Finish(ctx context.Context, query url.Values, cookie string) (s *people.Session, next string,
	err error) {
	f, ok := d.open(cookie)
	if !ok || subtle.ConstantTimeCompare([]byte(f.State), []byte(query.Get("state"))) != 1 {
		return nil, "", &people.Refusal{Status: 400, Message: "This sign-in was not begun in this browser, or more than ten minutes ago. Sign in again."}
	}
	if from := query.Get("iss"); from != "" && from != d.Provider.opts.Issuer { // RFC 9207
		d.Log.Warn("the answer to a sign-in is another provider's", "iss", clip(from))
		return nil, "", &people.Refusal{Status: 502, Message: "The answer of the identity provider is not valid. The server's log has the reason."}
	}
	if code := query.Get("error"); code != "" {
		d.Log.Warn("the identity provider refused a sign-in", "error", clip(code), "description",
			clip(query.Get("error_description")))
		return nil, "", &people.Refusal{Status: 403, Message: "The identity provider has refused the sign-in (" + clip(code) + ")."}
	}
	claims, err := d.Provider.claims(ctx, f, query.Get("code"))
	if err != nil {
		d.Log.Warn("failed to end a sign-in", "err", err)
		return nil, "", &people.Refusal{Status: 502, Message: "The answer of the identity provider is not valid. The server's log has the reason."}
	}
	s, err = d.People.SignIn(ctx, claims)
	switch {
	case errors.Is(err, people.ErrDeactivated):
		return nil, "", &people.Refusal{Status: 403, Message: "Your access to this server was deactivated. Ask its operator."}
	case errors.Is(err, people.ErrNoAccess):
		return nil, "", &people.Refusal{Status: 403, Message: "You are signed in, but none of your groups has access to this server. Ask its operator."}
	}
	return s, f.Next, err
}

// SignOut ends the session of a token.
func (d *Door) SignOut(ctx context.Context, token string) error { return d.People.SignOut(ctx, token) }

// clip returns the start of a text without what could forge a line of a log.
func clip(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	return text[:min(len(text), 100)]
}
