package egress

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
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
}

func (f filler) replace(s string) string {
	for _, secret := range f.secrets {
		if !strings.Contains(s, secret.Placeholder) {
			continue
		}
		f.used[secret.Name] = true
		value := secret.Value
		if f.escape != nil {
			value = f.escape(value)
		}
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

// fillBody fills in a body that is text and not large; another passes as it is.
func fillBody(r *http.Request, secrets []Secret, used map[string]bool) io.ReadCloser {
	kind := r.Header.Get("Content-Type")
	form := strings.HasPrefix(kind, "application/x-www-form-urlencoded")
	isJSON := strings.HasPrefix(kind, "application/json")
	if !form && !isJSON && !strings.HasPrefix(kind, "text/") {
		return r.Body
	}
	head, err := io.ReadAll(io.LimitReader(r.Body, maxFilled+1))
	if err != nil || len(head) > maxFilled {
		return struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(head), r.Body), r.Body}
	}
	in := filler{secrets, used, nil}
	switch {
	case form:
		in.escape = url.QueryEscape
	case isJSON:
		in.escape = inJSON
	}
	full := in.replace(string(head))
	r.ContentLength = int64(len(full))
	r.Header.Set("Content-Length", strconv.Itoa(len(full)))
	return struct {
		io.Reader
		io.Closer
	}{strings.NewReader(full), r.Body}
}

// inJSON returns a text as it stands between the quotes of a JSON string.
func inJSON(s string) string {
	raw, _ := json.Marshal(s) // a string always marshals
	return string(raw[1 : len(raw)-1])
}

// A mask hides secrets in what comes back: in the forms in which a host would
// most likely echo them.
type mask struct {
	words   []hidden // the longest first
	longest int
	in      *strings.Replacer
}

// A hidden word is one form of a secret, and what is shown for it.
type hidden struct {
	form  []byte
	shown string
}

func newMask(secrets []Secret) *mask {
	m := &mask{}
	for _, s := range secrets {
		seen := map[string]bool{}
		for _, form := range []string{s.Value, inJSON(s.Value), url.QueryEscape(s.Value), url.PathEscape(s.Value),
			base64.StdEncoding.EncodeToString([]byte(s.Value)), base64.RawURLEncoding.EncodeToString([]byte(s.Value))} {
			if !seen[form] {
				seen[form] = true
				m.words = append(m.words, hidden{[]byte(form), s.Placeholder})
				m.longest = max(m.longest, len(form))
			}
		}
	}
	slices.SortStableFunc(m.words, func(a, b hidden) int { return len(b.form) - len(a.form) })
	var pairs []string
	for _, w := range m.words {
		pairs = append(pairs, string(w.form), w.shown)
	}
	m.in = strings.NewReplacer(pairs...)
	return m
}

func (m *mask) response(r *http.Response) {
	for _, header := range []http.Header{r.Header, r.Trailer} {
		for name, values := range header {
			for i, v := range values {
				header[name][i] = m.in.Replace(v)
			}
		}
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		// It was asked not to, and cannot be looked through.
		r.Body.Close()
		r.Body = io.NopCloser(strings.NewReader(""))
		r.StatusCode, r.ContentLength = http.StatusBadGateway, 0
		r.Header = http.Header{"Content-Length": {"0"}}
		return
	}
	if r.StatusCode == http.StatusSwitchingProtocols {
		return
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{&maskedReader{mask: m, from: r.Body}, r.Body}
	r.ContentLength = -1
	r.Header.Del("Content-Length")
	r.Header.Del("Content-Md5")
	r.Header.Del("Digest")
}

// A maskedReader hides words in a stream. It holds back only what may be the
// beginning of one.
type maskedReader struct {
	mask  *mask
	from  io.Reader
	raw   []byte // read and not yet looked through
	ready []byte
	err   error
	buf   []byte
}

func (r *maskedReader) Read(p []byte) (int, error) {
	for len(r.ready) == 0 {
		if r.err != nil {
			if len(r.raw) == 0 {
				return 0, r.err
			}
			r.ready, r.raw = []byte(r.mask.in.Replace(string(r.raw))), nil
			continue
		}
		if r.buf == nil {
			r.buf = make([]byte, 32<<10)
		}
		n, err := r.from.Read(r.buf)
		r.raw, r.err = append(r.raw, r.buf[:n]...), err
		if err == nil {
			r.release()
		}
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

// release makes ready what is certain.
func (r *maskedReader) release() {
	var out []byte
	for len(r.raw) > 0 {
		at, word := -1, hidden{}
		for _, w := range r.mask.words {
			if i := bytes.Index(r.raw, w.form); i >= 0 && (at < 0 || i < at) {
				at, word = i, w
			}
		}
		if at < 0 {
			break
		}
		// A longer word may begin earlier and end in what is not there yet.
		if begun := r.begun(r.raw[:at+len(word.form)]); begun < at {
			out = append(out, r.raw[:begun]...)
			r.raw = r.raw[begun:]
			r.ready = out
			return
		}
		out = append(append(out, r.raw[:at]...), word.shown...)
		r.raw = r.raw[at+len(word.form):]
	}
	begun := r.begun(r.raw)
	r.ready = append(out, r.raw[:begun]...)
	r.raw = bytes.Clone(r.raw[begun:])
}

// begun returns where the longest beginning of a word starts with which b ends.
func (r *maskedReader) begun(b []byte) int {
	for i := max(0, len(b)-r.mask.longest+1); i < len(b); i++ {
		for _, w := range r.mask.words {
			if len(b)-i < len(w.form) && bytes.HasPrefix(w.form, b[i:]) {
				return i
			}
		}
	}
	return len(b)
}
