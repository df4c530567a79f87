package egress

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// A Transform sets header fields of all requests to a host. The sandbox sees neither the fields nor, in responses, the
// secrets in them. It is a rule of E2B's network configuration, and grants no access.
type Transform struct {
	Host string // as Rule.Name: exact, or "*." and a domain for all names below it
	// Headers has a value for each name. "${e2b.secrets.NAME}" in a value is replaced by the present value of a stored
	// secret.
	Headers map[string]string
}

// ErrNoSecret is the error of Gate.Value for a name that no stored secret has.
var ErrNoSecret = errors.New("egress: no such secret")

// placeholders matches references to other values in the value of a header field.
var placeholders = regexp.MustCompile(`\$\{e2b\.([^{}]*)\}`)

const (
	ofSecrets = "secrets." // begins a placeholder of a secret

	maxFields     = 32 // of a transform
	maxFieldValue = 4 << 10
)

// unset are the header fields that a transform must not set. They frame or route the request, or ask for a response
// that cannot be masked.
var unset = append([]string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Te", "Trailer",
	"Upgrade", "Expect",
	"Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "Accept-Encoding", "Http2-Settings"}, partial...)

// ParseTransform returns the transform of a host in any case. Its errors are for the client.
func ParseTransform(host string, headers map[string]string) (Transform, error) {
	r, err := ParseRule(host)
	if err != nil || r.Name == "" || r.Name == "*" || len(r.Ports) > 0 {
		return Transform{}, fmt.Errorf("%q is not a host name or *.name", clip(host))
	}
	if len(headers) > maxFields {
		return Transform{}, fmt.Errorf("a rule sets at most %d header fields", maxFields)
	}
	t := Transform{Host: r.Name, Headers: map[string]string{}}
	for name, value := range headers {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return Transform{}, fmt.Errorf("%q is not the name of a header field", clip(name))
		case slices.Contains(unset, canonical) || strings.HasPrefix(canonical, "Sec-Websocket-"):
			return Transform{}, fmt.Errorf("a rule cannot set the header field %q", canonical)
		case !httpguts.ValidHeaderFieldValue(value):
			return Transform{}, fmt.Errorf("the value of the header field %q must be one line", canonical)
		case len(value) > maxFieldValue:
			return Transform{}, fmt.Errorf("the value of the header field %q has more than %d bytes", canonical,
				maxFieldValue)
		}
		if _, twice := t.Headers[canonical]; twice {
			return Transform{}, fmt.Errorf("the header field %q is set twice", canonical)
		}
		for _, found := range placeholders.FindAllStringSubmatch(value, -1) {
			if name, ok := strings.CutPrefix(found[1], ofSecrets); !ok || name == "" {
				return Transform{}, fmt.Errorf("the header field %q has an unknown placeholder: %s", canonical,
					clip(found[0]))
			}
		}
		if rest := placeholders.ReplaceAllString(value, ""); strings.Contains(strings.ToLower(rest), "${e2b") {
			return Transform{}, fmt.Errorf("the header field %q has a malformed placeholder", canonical)
		}
		t.Headers[canonical] = value
	}
	return t, nil
}

// Secrets returns the names of the stored secrets that the transform needs, sorted.
func (t *Transform) Secrets() []string {
	var names []string
	for _, value := range t.Headers {
		for _, found := range placeholders.FindAllStringSubmatch(value, -1) {
			names = append(names, strings.TrimPrefix(found[1], ofSecrets))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// transformFor returns the transform of a host: the exact one, else the one with the longest suffix, else nil.
func (g *Gate) transformFor(host string) *Transform {
	var found *Transform
	for i := range g.Transforms {
		t := &g.Transforms[i]
		switch {
		case t.Host == host:
			return t
		case (Rule{Name: t.Host}).HasName(host) && (found == nil || len(t.Host) > len(found.Host)):
			found = t
		}
	}
	return found
}

// fields returns the header fields that a transform sets in one request. The values of secrets are looked up each time,
// so that a new value is used immediately. They are masked in what the gate's hosts answer from now on.
func (c *crossing) fields(ctx context.Context, t *Transform) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	h, room := http.Header{}, maxHeaderFill
	var used []string
	for name, value := range t.Headers {
		var failed error
		full := placeholders.ReplaceAllStringFunc(value, func(placeholder string) string {
			secret := strings.TrimPrefix(placeholders.FindStringSubmatch(placeholder)[1], ofSecrets)
			value, err := c.gate.stored(ctx, secret)
			if err == nil && !httpguts.ValidHeaderFieldValue(value) {
				err = refusal(fmt.Sprintf("the secret %q cannot be sent in a header field", secret))
			}
			if err != nil {
				failed = err
				return ""
			}
			c.gate.hideValue(Secret{Name: secret, Value: value, Placeholder: placeholder})
			used = append(used, secret)
			return value
		})
		if room -= len(full); failed == nil && room < 0 {
			failed = refusal("the header fields of a network rule are too large")
		}
		if failed != nil {
			return nil, failed
		}
		h.Set(name, full)
	}
	for _, name := range used {
		c.used[name] = true
	}
	return h, nil
}

// set sets fields in the header of a request. It removes what many hosts read as the same field: CGI and its heirs do
// not distinguish "_" from "-".
func set(h, fields http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		_, ok := fields[textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))]
		return ok
	})
	maps.Copy(h, fields)
}

// stored returns the present value of a stored secret.
func (g *Gate) stored(ctx context.Context, name string) (string, error) {
	if g.Value == nil {
		return "", refusal("this server stores no secrets")
	}
	value, err := g.Value(ctx, name)
	switch {
	case errors.Is(err, ErrNoSecret):
		return "", refusal(fmt.Sprintf("a network rule names the secret %q, which does not exist", name))
	case err != nil:
		return "", refusal(fmt.Sprintf("the secret %q of a network rule cannot be read now", name))
	}
	return value, nil
}
