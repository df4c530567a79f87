// Package mint gets short-lived access tokens in exchange for a secret that only the server has: by OAuth 2's client
// credentials (RFC 6749, 4.4), or as an installation of a GitHub App.
package mint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// A Grant is how tokens are got. One of Client and App is set.
type Grant struct {
	Client *Client `json:",omitempty"`
	App    *App    `json:",omitempty"`
}

// Endpoint returns the URL whose host gives the tokens.
func (g *Grant) Endpoint() string {
	if g.App != nil {
		return g.App.URL
	}
	return g.Client.URL
}

// A Client is one of OAuth 2.
type Client struct {
	ID, Secret string
	URL        string // token endpoint
	Scopes     []string
	Audience   string
}

// A Token is an access token with its end.
type Token struct {
	Value   string
	Expires time.Time
}

const (
	// Timeout bounds the request for a token.
	Timeout = 10 * time.Second

	defaultLife = 5 * time.Minute  // of a token whose end is not known
	margin      = time.Minute      // before its end, a token is replaced; of short ones earlier
	again       = 5 * time.Second  // after a failure
	young       = 30 * time.Second // a younger token is not replaced because a host refuses it
	maxToken    = 16 << 10
	minToken    = 8 // a shorter one would be masked everywhere
)

// An Error is why there is no token. It never contains a secret, nor text of the endpoint.
type Error struct {
	Refused bool // by the endpoint, which was reached
	Reason  string

	client bool // the endpoint may not have seen the client's credentials
}

func (e *Error) Error() string { return e.Reason }

var errAway = &Error{Reason: "the endpoint for tokens cannot be reached or has failed"}

// Fetch requests a new token. The client must not follow redirects.
func (g *Grant) Fetch(ctx context.Context, c *http.Client, now time.Time) (Token, error) {
	var t Token
	var err error
	if g.App != nil {
		t, err = g.App.fetch(ctx, c, now)
	} else {
		t, err = g.Client.fetch(ctx, c, oauth2.AuthStyleInHeader)
		if e, ok := errors.AsType[*Error](err); ok && e.client {
			if second, again := g.Client.fetch(ctx, c, oauth2.AuthStyleInParams); again == nil {
				t, err = second, nil
			}
		}
	}
	if err == nil && (len(t.Value) < minToken || len(t.Value) > maxToken || strings.ContainsAny(t.Value, " \t") ||
		!httpguts.ValidHeaderFieldValue(t.Value)) {
		err = &Error{Refused: true, Reason: "the endpoint for tokens answered without a token that can be sent"}
	}
	return t, err
}

// codes are RFC 6749's errors. Other text of an endpoint is not repeated: it could contain the secret.
var codes = []string{"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client",
	"unsupported_grant_type", "invalid_scope", "invalid_target"}

// fetch requests a token. Some endpoints read the client's id and secret only in the body, so AuthStyleInParams is
// tried after a refusal.
func (o *Client) fetch(ctx context.Context, c *http.Client, style oauth2.AuthStyle) (Token, error) {
	conf := clientcredentials.Config{ClientID: o.ID, ClientSecret: o.Secret, TokenURL: o.URL, Scopes: o.Scopes,
		AuthStyle: style}
	if o.Audience != "" {
		conf.EndpointParams = url.Values{"audience": {o.Audience}}
	}
	t, err := conf.Token(context.WithValue(ctx, oauth2.HTTPClient, c))
	if failed, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		status := failed.Response.StatusCode
		switch {
		case slices.Contains(codes, failed.ErrorCode):
			return Token{}, &Error{Refused: true, Reason: "the endpoint for tokens answered " + failed.ErrorCode,
				client: failed.ErrorCode == "invalid_client" || failed.ErrorCode == "invalid_request"}
		case status < http.StatusInternalServerError && status != http.StatusTooManyRequests:
			return Token{}, refused(status)
		}
	}
	if err != nil {
		return Token{}, errAway
	}
	if t.TokenType != "" && !strings.EqualFold(t.TokenType, "bearer") {
		return Token{}, &Error{Refused: true, Reason: "the endpoint for tokens answered with a token that is no bearer's"}
	}
	return Token{Value: t.AccessToken, Expires: t.Expiry}, nil
}

func refused(status int) *Error {
	return &Error{Refused: true, Reason: fmt.Sprintf("the endpoint for tokens answered %d", status),
		client: status == http.StatusBadRequest || status == http.StatusUnauthorized}
}

// A Source has the present token of one secret. It is safe for concurrent use.
type Source struct {
	Grant  *Grant
	Client *http.Client     // must not follow redirects
	Now    func() time.Time // nil: time.Now

	mu      sync.Mutex
	token   Token
	since   time.Time // of the token
	err     error     // the last failure
	failed  time.Time
	pending chan struct{} // closed at the end of the request for a token; nil: there is none
}

func (s *Source) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// Token returns a token that is valid. One request for a new one is made at a time, and all who have none wait for it.
// It does not end with ctx: others may wait. A token that ends soon is used while a new one is requested.
func (s *Source) Token(ctx context.Context) (string, error) {
	for tried := false; ; tried = true {
		s.mu.Lock()
		now := s.now()
		valid := s.token.Value != "" && now.Before(s.token.Expires)
		recent := s.err != nil && now.Before(s.failed.Add(again))
		if !valid && s.pending == nil && s.err != nil && (recent || tried) {
			defer s.mu.Unlock()
			return "", s.err
		}
		if s.pending == nil && !recent && (!valid || s.aging(now)) {
			s.pending = make(chan struct{})
			go s.fetch(context.WithoutCancel(ctx), s.pending)
		}
		pending, token := s.pending, s.token.Value
		s.mu.Unlock()
		if valid {
			return token, nil
		}
		select {
		case <-pending:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// aging reports whether the token ends soon.
func (s *Source) aging(now time.Time) bool {
	early := min(margin, s.token.Expires.Sub(s.since)/4)
	return !now.Before(s.token.Expires.Add(-early))
}

func (s *Source) fetch(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	now := s.now()
	token, err := s.Grant.Fetch(ctx, s.Client, now)
	if token.Expires.IsZero() {
		token.Expires = now.Add(defaultLife)
	}
	if err == nil && !token.Expires.After(now) {
		err = &Error{Refused: true, Reason: "the endpoint for tokens answered with a token that has ended"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err == nil {
		s.token, s.since = token, now
	} else {
		s.failed = s.now()
	}
	s.pending = nil
	close(done)
}

// Refused drops a token that a host has refused, unless it is young: a sandbox can make a host refuse any.
func (s *Source) Refused(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token == s.token.Value && s.now().After(s.since.Add(young)) {
		s.token = Token{}
	}
}
