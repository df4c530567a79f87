package egress

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/berth-run/berth/egress/allow"
	"github.com/berth-run/berth/egress/mint"
	"github.com/berth-run/berth/egress/sign"
)

// maxFilled bounds the size of a request body in which placeholders are replaced.
const maxFilled = 4 << 20

// A Secret is a value that a container can send to one domain but never sees.
type Secret struct {
	Domain      string // as Rule.Name: exact, or "*." and a domain
	Name        string // name of the environment variable that holds the placeholder
	Value       string
	Placeholder string // the value that the sandbox sees

	// Sign signs requests in which the placeholder is the id of an access key. Value is empty then.
	Sign *sign.Key `json:",omitempty"`
	// Mint gets the tokens that replace the placeholder in header fields. Value is empty then.
	Mint *mint.Grant `json:",omitempty"`
}

// isValue reports whether the placeholder is replaced by Value.
func (s Secret) isValue() bool { return s.Sign == nil && s.Mint == nil }

// NewPlaceholder returns a random placeholder for the secret with a name. It is unguessable, so
// that a placeholder of another container is useless.
func NewPlaceholder(name string) string {
	return "secret-" + strings.ToLower(name) + "-" + strings.ToLower(rand.Text())
}

func (g *Gate) secretsFor(host string) []Secret {
	var found []Secret
	for _, s := range g.Secrets {
		if (Rule{Name: s.Domain}).HasName(host) {
			found = append(found, s)
		}
	}
	return found
}

// fills are the secrets filled in requests to one host, and the rules for these requests.
type fills struct {
	secrets   []Secret        // with values
	keys      []Secret        // that sign requests
	mints     []Secret        // that get tokens
	transform *Transform      // nil: none
	requests  []allow.Request // nil: all are allowed
}

func (g *Gate) fillsFor(host string) fills {
	what := fills{transform: g.transformFor(host), requests: g.Policy.requestsFor(host)}
	for _, s := range g.secretsFor(host) {
		switch {
		case s.Sign != nil:
			what.keys = append(what.keys, s)
		case s.Mint != nil:
			what.mints = append(what.mints, s)
		default:
			what.secrets = append(what.secrets, s)
		}
	}
	return what
}

// reads reports whether the requests must be read: whatever else reaches the host is refused.
func (f fills) reads() bool { return f.any() || len(f.requests) > 0 || len(f.keys) > 0 }

// any reports whether values are sent to the host, which may repeat them.
func (f fills) any() bool { return len(f.secrets) > 0 || len(f.mints) > 0 || f.transform != nil }

// A filler replaces placeholders by values.
type filler struct {
	secrets []Secret
	used    map[string]bool     // names of the secrets used
	escape  func(string) string // encodes values; nil leaves them unchanged
	room    *int                // bytes by which texts may still grow
}

// replace replaces the placeholders in a text. It leaves a placeholder whose values would
// exceed room: repeating it could otherwise fill the server's memory.
func (f filler) replace(s string) string {
	for _, secret := range f.secrets {
		times := strings.Count(s, secret.Placeholder)
		if times == 0 {
			continue
		}
		value := secret.Value
		if f.escape != nil {
			value = f.escape(value)
		}
		growth := times * (len(value) - len(secret.Placeholder))
		if growth > *f.room {
			continue
		}
		*f.room -= max(growth, 0)
		f.used[secret.Name] = true
		s = strings.ReplaceAll(s, secret.Placeholder, value)
	}
	return s
}

// basic replaces placeholders inside the base64 of a Basic authorization.
func basic(header string, in filler) string {
	scheme, encoded, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Basic") {
		return header
	}
	plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil {
		return header
	}
	return scheme + " " + base64.StdEncoding.EncodeToString([]byte(in.replace(string(plain))))
}

// Bodies in which placeholders are replaced are held in memory: any number of small bodies, and
// largeBodies larger ones per container.
const (
	smallBody   = 64 << 10
	largeBodies = 4
)

// fillBody replaces placeholders in a text body of at most maxFilled bytes. It returns any other
// body unchanged.
func (g *Gate) fillBody(r *http.Request, secrets []Secret, used map[string]bool) io.ReadCloser {
	room := maxFilled
	in := filler{secrets, used, nil, &room}
	switch kind := r.Header.Get("Content-Type"); {
	case strings.HasPrefix(kind, "application/x-www-form-urlencoded"):
		in.escape = url.QueryEscape
	case strings.HasPrefix(kind, "application/json"):
		in.escape = inJSON
	case !strings.HasPrefix(kind, "text/"):
		return r.Body
	}
	body := &heldBody{Closer: r.Body, release: func() {}}
	head, err := io.ReadAll(io.LimitReader(r.Body, smallBody+1))
	if err == nil && len(head) > smallBody {
		if body.release, err = g.holdLarge(r.Context()); err == nil {
			var more []byte
			more, err = io.ReadAll(io.LimitReader(r.Body, maxFilled+1-int64(len(head))))
			head = append(head, more...)
		}
	}
	switch {
	case err != nil:
		body.Reader = io.MultiReader(bytes.NewReader(head), failing{err})
	case len(head) > maxFilled:
		body.Reader = io.MultiReader(bytes.NewReader(head), r.Body)
	default:
		full := in.replace(string(head))
		r.ContentLength = int64(len(full))
		r.Header.Set("Content-Length", strconv.Itoa(len(full)))
		body.Reader = strings.NewReader(full)
	}
	return body
}

// holdLarge waits for one of the largeBodies slots. The caller must call release.
func (g *Gate) holdLarge(ctx context.Context) (release func(), err error) {
	g.large.init.Do(func() { g.large.places = make(chan struct{}, largeBodies) })
	select {
	case g.large.places <- struct{}{}:
		return sync.OnceFunc(func() { <-g.large.places }), nil
	case <-ctx.Done():
		return func() {}, ctx.Err()
	}
}

// A heldBody releases its slot when it is closed.
type heldBody struct {
	io.Reader
	io.Closer
	release func()
}

func (b *heldBody) Close() error {
	b.Reader = failing{http.ErrBodyReadAfterClose}
	b.release()
	return b.Closer.Close()
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// inJSON escapes a text for use inside a JSON string.
func inJSON(s string) string {
	raw, _ := json.Marshal(s) // a string always marshals
	return string(raw[1 : len(raw)-1])
}
