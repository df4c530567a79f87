// Package oidc lets people sign in with a provider of OpenID Connect: authorization code with PKCE, state and nonce.
//
// The state of a sign-in under way is in a sealed cookie of the browser, so that every server of a cluster can end
// what another has begun, and nobody can fill a server's memory.
package oidc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/people"
)

const (
	// skew is how far the clocks of the provider and of this server may differ.
	skew = time.Minute

	maxAnswer = 1 << 20          // bytes of an answer of the provider
	timeout   = 15 * time.Second // of a request to the provider
	renewal   = time.Hour        // of the provider's description
	retryWait = 30 * time.Second // between attempts to reach the provider in the background
)

// Options configure a Provider.
type Options struct {
	Issuer, ClientID, ClientSecret string

	RedirectURL string
	Scopes      []string
	GroupsClaim string
	Transport   http.RoundTripper // default: http.DefaultTransport
	Log         *slog.Logger
	Now         func() time.Time
}

// A Provider is a provider of OpenID Connect. It is safe for concurrent use.
type Provider struct {
	opts Options
	http *http.Client

	mu     sync.Mutex // held during discovery
	found  *oidc.Provider
	finder context.Context // of the provider's key set
	at     time.Time       // of discovery
}

// NewProvider returns a provider. It does not connect to it.
func NewProvider(opts Options) *Provider {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Transport == nil {
		opts.Transport = http.DefaultTransport
	}
	client := &http.Client{Transport: bounded{opts.Transport}, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("the provider redirects") }}
	return &Provider{opts: opts, http: client, finder: oidc.ClientContext(context.Background(), client)}
}

// bounded bounds the answers of a transport.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

// Run reaches the provider once, so that a wrong configuration is in the log at the start. It retries until ctx ends.
func (p *Provider) Run(ctx context.Context) {
	for warned := false; ; {
		_, err := p.discover(ctx)
		if err == nil || ctx.Err() != nil {
			if warned && err == nil {
				p.opts.Log.Info("reached the identity provider", "issuer", p.opts.Issuer)
			}
			return
		}
		if !warned {
			p.opts.Log.Warn("failed to reach the identity provider: nobody can sign in; keys work; will retry",
				"issuer", p.opts.Issuer, "err", err)
			warned = true
		}
		if backoff.Sleep(ctx, retryWait) != nil {
			return
		}
	}
}

// discover returns the provider's description, which it renews from time to time.
func (p *Provider) discover(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil && p.opts.Now().Sub(p.at) < renewal {
		return p.found, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.http), p.opts.Issuer)
	if err != nil {
		if p.found != nil {
			return p.found, nil // the former description serves until the provider answers
		}
		return nil, fmt.Errorf("discover provider: %w", err)
	}
	p.found, p.at = found, p.opts.Now()
	return found, nil
}

func (p *Provider) client(found *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{ClientID: p.opts.ClientID, ClientSecret: p.opts.ClientSecret, Endpoint: found.Endpoint(),
		RedirectURL: p.opts.RedirectURL, Scopes: p.opts.Scopes}
}

// authorizeURL returns where the browser signs in.
func (p *Provider) authorizeURL(ctx context.Context, f flow) (string, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	return p.client(found).AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), nil
}

// claims exchanges a code for what the provider says of the person.
func (p *Provider) claims(ctx context.Context, f flow, code string) (people.Claims, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return people.Claims{}, err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.http), timeout)
	defer cancel()
	token, err := p.client(found).Exchange(ctx, code, oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return people.Claims{}, fmt.Errorf("exchange code: %w", withoutAnswer(err))
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return people.Claims{}, errors.New("the provider returned no ID token; is openid among the scopes?")
	}
	// The verifier's own check of times allows no difference of the clocks.
	verifier := found.VerifierContext(p.finder, &oidc.Config{ClientID: p.opts.ClientID, SkipExpiryCheck: true})
	id, err := verifier.Verify(ctx, raw)
	if err != nil {
		return people.Claims{}, fmt.Errorf("verify ID token: %w", err)
	}
	if id.Nonce != f.Nonce {
		return people.Claims{}, errors.New("verify ID token: it belongs to another sign-in (nonce)")
	}
	return p.read(id)
}

// withoutAnswer returns the error of a token endpoint without its answer, which may contain a secret.
func withoutAnswer(err error) error {
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return fmt.Errorf("the provider answered %s %q", e.Response.Status, e.ErrorCode)
	}
	return err
}

// read checks the times of a token and returns its claims.
func (p *Provider) read(id *oidc.IDToken) (people.Claims, error) {
	c := people.Claims{Issuer: id.Issuer, Subject: id.Subject}
	var standard struct {
		Name          string  `json:"name"`
		Preferred     string  `json:"preferred_username"`
		Email         string  `json:"email"`
		Verified      any     `json:"email_verified"`
		NotBefore     float64 `json:"nbf"`
		AuthorizedFor string  `json:"azp"`
	}
	if err := id.Claims(&standard); err != nil {
		return c, fmt.Errorf("read claims: %w", err)
	}
	now := p.opts.Now()
	switch notBefore := time.Unix(int64(standard.NotBefore), 0); {
	case c.Subject == "":
		return c, errors.New("verify ID token: it has no subject")
	case !now.Before(id.Expiry.Add(skew)):
		return c, fmt.Errorf("verify ID token: it expired at %s; is the clock of this server right?", id.Expiry.UTC())
	case id.IssuedAt.After(now.Add(skew)) || notBefore.After(now.Add(skew)):
		return c, errors.New("verify ID token: it is from the future; is the clock of this server right?")
	case len(id.Audience) > 1 && standard.AuthorizedFor != p.opts.ClientID:
		return c, errors.New("verify ID token: it was issued for another client (azp)")
	}
	c.Name = standard.Name
	if c.Name == "" {
		c.Name = standard.Preferred
	}
	if standard.Verified != false && standard.Verified != "false" {
		c.Email = standard.Email // anybody may claim an address that is not verified
	}
	var more map[string]any
	if err := id.Claims(&more); err != nil {
		return c, fmt.Errorf("read claims: %w", err)
	}
	var err error
	c.Groups, err = groupsOf(more[p.opts.GroupsClaim])
	return c, err
}

// maxGroups bounds the groups of a person.
const maxGroups = 2000

// groupsOf returns the groups of a claim: a list of names, or one name. A missing claim is no group.
func groupsOf(claim any) ([]string, error) {
	switch value := claim.(type) {
	case nil:
		return nil, nil
	case string:
		return []string{value}, nil
	case []any:
		if len(value) > maxGroups {
			return nil, fmt.Errorf("read claims: the person has %d groups, more than %d", len(value), maxGroups)
		}
		var groups []string
		for _, one := range value {
			name, ok := one.(string)
			if !ok {
				return nil, errors.New("read claims: a group is not a text")
			}
			if name != people.Everyone { // the provider cannot name it
				groups = append(groups, name)
			}
		}
		slices.Sort(groups)
		return slices.Compact(groups), nil
	}
	return nil, errors.New("read claims: groups are neither a list nor a text")
}
