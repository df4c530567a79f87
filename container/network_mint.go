package container

import (
	"cmp"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/egress/mint"
)

// endpointRule returns the rule that opens the way to an endpoint for tokens, or an error for the client.
func (ns *networks) endpointRule(at, address string) (egress.Rule, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return egress.Rule{}, berth.Invalid(at, "Invalid URL: expected one such as 'https://login.example.com/oauth/token'.")
	}
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme])
	r, err := egress.ParseRule(net.JoinHostPort(u.Hostname(), port))
	if err != nil || strings.HasPrefix(r.Name, "*") || r.Prefix.IsValid() && !r.Prefix.IsSingleIP() {
		return egress.Rule{}, berth.Invalid(at, "Invalid URL: '%s' is not a host.", u.Hostname())
	}
	r.Private = egress.Covers(ns.opts.Network.Private, r)
	switch {
	case u.Scheme == "http" && !r.Private:
		return egress.Rule{}, berth.Invalid(at, "Invalid URL: the secret is sent over TLS only, so it must begin with https.")
	case !r.Private && !ns.permits(r) && !ns.permits(egress.Rule{Name: r.Name, Prefix: r.Prefix}):
		return egress.Rule{}, berth.Invalid(at, "The host '%s' is not allowed on this server.", u.Hostname())
	}
	return r, nil
}

// checkEndpoint checks the URL of an endpoint for tokens. The server sends requests there for a client, so it is
// restricted as the hosts that containers reach.
func (ns *networks) checkEndpoint(at, address string) error {
	_, err := ns.endpointRule(at, address)
	return err
}

var number = regexp.MustCompile(`^[0-9A-Za-z._-]{1,64}$`)

// appURL returns the address of the API at which a GitHub App gets tokens.
func appURL(s berth.DomainSecret) string {
	return strings.TrimSuffix(cmp.Or(s.APIURL, "https://api.github.com"), "/")
}

// checkApp checks the secret of a GitHub App.
func (ns *networks) checkApp(at string, s berth.DomainSecret) error {
	if !number.MatchString(s.AppID) {
		return berth.Invalid(at+".app_id", "A secret of the type '%s' needs the id of the App.", s.Type)
	}
	if !number.MatchString(s.InstallationID) || strings.Trim(s.InstallationID, ".") == "" {
		return berth.Invalid(at+".installation_id", "A secret of the type '%s' needs the id of the installation.", s.Type)
	}
	if _, err := mint.ParseKey(s.Value); err != nil {
		return berth.Invalid(at+".value", "Invalid value: expected the private key of the App, an RSA key in PEM.")
	}
	return ns.checkEndpoint(at+".api_url", appURL(s))
}

// A tokenSources has the sources of tokens of a container's secrets. They outlive its gates.
type tokenSources struct {
	mu  sync.Mutex
	all map[string]*mint.Source
}

// of returns the source for a secret.
func (ts *tokenSources) of(s egress.Secret, source func(*mint.Grant) *mint.Source) *mint.Source {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	key := s.Name + " " + s.Domain
	if ts.all[key] == nil {
		if ts.all == nil {
			ts.all = map[string]*mint.Source{}
		}
		ts.all[key] = source(s.Mint)
	}
	return ts.all[key]
}

// source returns a source of tokens for a container of a project. It reaches the endpoint alone, through the server's
// proxy.
func (ns *networks) source(p berth.ProjectID, g *mint.Grant) *mint.Source {
	r, err := ns.endpointRule("", g.Endpoint())
	if err != nil {
		r = egress.Rule{} // allows nothing
	}
	rules := []egress.Rule{r}
	if r.Private { // a name that leads to this machine needs the address as well, which the operator has listed
		for _, own := range ns.opts.Network.Private {
			if own.Private = true; own.Prefix.IsValid() {
				rules = append(rules, own)
			}
		}
	}
	gate := &egress.Gate{Policy: &egress.Policy{Rules: rules}, Lookup: ns.opts.Network.Lookup,
		Dial: ns.opts.Network.Dial, Proxy: ns.proxyOf(p, access{}), Roots: ns.opts.Network.Proxies.Authorities()}
	return gate.Source(g)
}
