package egress

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/berth-run/berth/egress/mint"
)

// Source returns a source of tokens whose requests go where the policy of the gate allows. It follows no redirect: the
// request has the secret.
func (g *Gate) Source(grant *mint.Grant) *mint.Source {
	c := g.Client(mint.Timeout)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &mint.Source{Grant: grant, Client: c}
}

// mint returns the tokens of the secrets whose placeholders the header of a request has, each as the value of a secret.
func (c *crossing) mint(r *http.Request, secrets []Secret) (tokens []Secret, err error) {
	for _, s := range secrets {
		if !inHeader(r.Header, s.Placeholder) {
			continue
		}
		value, err := c.gate.Tokens(s).Token(r.Context())
		if err != nil {
			return nil, fmt.Errorf("no token for the secret %s: %w", s.Name, err)
		}
		s.Value, s.Mint = value, nil
		c.gate.hideValue(s)
		tokens = append(tokens, s)
	}
	return tokens, nil
}

// inHeader reports whether a header has a placeholder, also inside of Basic authorization.
func inHeader(h http.Header, placeholder string) bool {
	for _, values := range h {
		for _, v := range values {
			if strings.Contains(v, placeholder) {
				return true
			}
			scheme, encoded, _ := strings.Cut(v, " ")
			if !strings.EqualFold(scheme, "Basic") {
				continue
			}
			if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded)); err == nil &&
				strings.Contains(string(plain), placeholder) {
				return true
			}
		}
	}
	return false
}

// unavailable answers a request for which there is no token. The connection stays: the next one may find a token.
func unavailable(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	if e, ok := errors.AsType[*mint.Error](err); ok && e.Refused {
		status = http.StatusBadGateway
	}
	http.Error(w, "egress: "+err.Error(), status)
}

// refusedTokens drops tokens that a host does not accept.
func (c *crossing) refusedTokens(secrets, tokens []Secret) {
	for _, t := range tokens {
		for _, s := range secrets {
			if s.Name == t.Name && s.Domain == t.Domain {
				c.gate.Tokens(s).Refused(t.Value)
			}
		}
	}
}
