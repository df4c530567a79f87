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
)

// maxFilled bounds a request body in which placeholders are looked for.
const maxFilled = 4 << 20

// A Secret is a value that a container may use toward one domain and never sees.
type Secret struct {
	Domain      string // a rule's name: exact, or "*." and what it is below
	Name        string // of the environment variable that holds the placeholder
	Value       string
	Placeholder string // what the sandbox sees
}

// NewPlaceholder returns a word that stands for the secret of a name. It cannot be
// guessed, so that what another container was given means nothing here.
func NewPlaceholder(name string) string {
	return "secret-" + strings.ToLower(name) + "-" + strings.ToLower(rand.Text())
}

func (g *Gate) secretsFor(host string) []Secret {
	var found []Secret
	for _, s := range g.Secrets {
		if (Rule{Name: s.Domain}).matchesName(host) {
			found = append(found, s)
		}
	}
	return found
}

// A filler puts values in the place of placeholders.
type filler struct {
	secrets []Secret
	used    map[string]bool     // the names of secrets that it met
	escape  func(string) string // of values; nil is none
	room    *int                // by how many bytes what it fills in may still grow
}

// replace fills in a text. One that would grow too much stays as it is: a sandbox
// could repeat one word until its value fills the server's memory.
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

// basic fills in a Basic authorization, whose text is encoded.
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

// Bodies in which placeholders are looked for are held in memory: small ones of as
// many requests as there are, and a few that are larger.
const (
	smallBody   = 64 << 10
	largeBodies = 4
)

// fillBody fills in a body that is text and not large; another passes as it is.
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

// holdLarge waits until one more large body may be held, until release is called.
func (g *Gate) holdLarge(ctx context.Context) (release func(), err error) {
	g.large.begin.Do(func() { g.large.places = make(chan struct{}, largeBodies) })
	select {
	case g.large.places <- struct{}{}:
		return sync.OnceFunc(func() { <-g.large.places }), nil
	case <-ctx.Done():
		return func() {}, ctx.Err()
	}
}

// A heldBody releases its place when it is closed.
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

// inJSON returns a text as it stands between the quotes of a JSON string.
func inJSON(s string) string {
	raw, _ := json.Marshal(s) // a string always marshals
	return string(raw[1 : len(raw)-1])
}
