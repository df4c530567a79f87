package egress

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

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
		for _, form := range forms(s.Value) {
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

var percent = regexp.MustCompile(`%[0-9A-F]{2}`)

// forms returns how a value may come back: as it is, as JSON, in a URL, in HTML, in
// hex, in base64.
func forms(value string) []string {
	asJSON := inJSON(value)
	plainJSON := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value)
	query, path := url.QueryEscape(value), url.PathEscape(value)
	nested := inJSON(asJSON) // JSON within a string of JSON
	asHTML := html.EscapeString(value)
	asHex := hex.EncodeToString([]byte(value))
	all := []string{value, asJSON, plainJSON, nested, inJSON(plainJSON), strings.ReplaceAll(asJSON, "/", `\/`), strings.ReplaceAll(plainJSON, "/", `\/`),
		query, path, percent.ReplaceAllStringFunc(query, strings.ToLower), percent.ReplaceAllStringFunc(path, strings.ToLower),
		asHTML, strings.NewReplacer("&#34;", "&quot;", "&#39;", "&#x27;").Replace(asHTML), strings.NewReplacer("&#34;", "&quot;", "&#39;", "&#039;").Replace(asHTML),
		asHex, strings.ToUpper(asHex)}
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
		all = append(all, encoding.EncodeToString([]byte(value)))
	}
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			all = append(all, within(encoding, value, before))
		}
	}
	return all
}

// within returns what of a value's base64 is the same whatever comes before it, of
// which some bytes are in its first group, and after it: as in Basic authorization.
func within(encoding *base64.Encoding, value string, before int) string {
	whole := encoding.EncodeToString(append(make([]byte, before), value...))
	return whole[(8*before+5)/6 : 8*(before+len(value))/6]
}

// sameLength returns a mask that changes no lengths.
func (m *mask) sameLength() *mask {
	same := &mask{longest: m.longest}
	var pairs []string
	for _, w := range m.words {
		stars := strings.Repeat("*", len(w.form))
		same.words = append(same.words, hidden{w.form, stars})
		pairs = append(pairs, string(w.form), stars)
	}
	same.in = strings.NewReplacer(pairs...)
	return same
}

// header hides secrets in the fields of an answer. A field named after one is left
// out.
func (m *mask) header(h http.Header) {
	for name, values := range h {
		if m.names(name) {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i] = m.in.Replace(v)
		}
	}
}

// names reports whether a secret is in the name of a field, which is written in a
// case of its own.
func (m *mask) names(field string) bool {
	return slices.ContainsFunc(m.words, func(w hidden) bool {
		return len(w.form) <= len(field) && strings.Contains(strings.ToLower(field), strings.ToLower(string(w.form)))
	})
}

// A maskedWriter hides secrets in the fields of an answer, and of the hints that
// come before it.
type maskedWriter struct {
	http.ResponseWriter
	mask *mask
}

func (w maskedWriter) WriteHeader(status int) {
	w.mask.header(w.Header())
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w maskedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// response hides secrets in an answer. Its trailer, which comes after the body, is
// for maskedWriter's user.
func (m *mask) response(r *http.Response) {
	m.header(r.Header)
	m.header(r.Trailer) // the names that are announced
	// What the host calls its status and protocol is not passed on.
	r.Status, r.Proto, r.ProtoMajor, r.ProtoMinor = "", "HTTP/1.1", 1, 1
	if r.StatusCode == http.StatusSwitchingProtocols {
		r.Trailer, r.TransferEncoding = nil, nil
		if host, ok := r.Body.(io.ReadWriteCloser); ok {
			r.Body = &frames{ReadWriteCloser: host, mask: m.sameLength()}
		}
		return
	}
	if why := unreadable(r); why != "" {
		r.Body.Close()
		why = "egress: secrets cannot be hidden in the host's answer: " + why + "\n"
		r.Body = io.NopCloser(strings.NewReader(why))
		r.StatusCode, r.ContentLength, r.Trailer = http.StatusBadGateway, int64(len(why)), nil
		r.Header = http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "Content-Length": {strconv.Itoa(len(why))}}
		return
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{&maskedReader{mask: m, from: r.Body}, r.Body}
	r.ContentLength = -1
	for _, name := range []string{"Content-Length", "Content-Md5", "Digest", "Content-Digest", "Repr-Digest", "Accept-Ranges"} {
		r.Header.Del(name)
	}
}

// partial are the fields of requests that ask for a part of a document, or for it in
// another form: a secret could be read in pieces that do not look like it.
var partial = []string{"Range", "If-Range", "Request-Range", "X-Ms-Range", "A-Im", "Accept-Charset"}

// unreadable returns why secrets in an answer cannot be found, "" if they can. The
// request asked for none of this.
func unreadable(r *http.Response) string {
	if slices.ContainsFunc(r.Header["Content-Encoding"], func(s string) bool { return s != "" && !strings.EqualFold(s, "identity") }) {
		return "it is compressed"
	}
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	ofBytes := func(s string) bool {
		unit, which, _ := strings.Cut(strings.ToLower(strings.TrimSpace(s)), " ")
		refused := r.StatusCode == http.StatusRequestedRangeNotSatisfiable && unit == "bytes" && strings.HasPrefix(strings.TrimSpace(which), "*/")
		return strings.HasPrefix(unit, "bytes") && !refused
	}
	if r.StatusCode == http.StatusPartialContent || r.StatusCode == http.StatusIMUsed ||
		strings.EqualFold(strings.TrimSpace(kind), "multipart/byteranges") ||
		slices.ContainsFunc(r.Header["Content-Range"], ofBytes) {
		return "it is a part of a document"
	}
	return ""
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
			// Of an answer that is cut off, its end may be the beginning of a secret.
			if len(r.raw) == 0 || r.err != io.EOF {
				return 0, r.err
			}
			r.ready = r.end()
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

// push takes the next bytes of a stream that is not read from a Reader, and returns
// what is certain.
func (r *maskedReader) push(b []byte) []byte {
	r.raw = append(r.raw, b...)
	r.release()
	ready := r.ready
	r.ready = nil
	return ready
}

// end returns what was held back, of a stream that has ended.
func (r *maskedReader) end() []byte {
	ready := []byte(r.mask.in.Replace(string(r.raw)))
	r.raw = nil
	return ready
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
