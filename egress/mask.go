package egress

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// A mask hides secrets in responses, in the forms in which a host is likely to echo them.
type mask struct {
	words *atomic.Pointer[words] // may be replaced in the middle of a response
	stars bool                   // replace a secret by as many stars
}

// words are what a mask looks for.
type words struct {
	all     []secretForm
	begins  [256]bool // first bytes of all
	pairs   *pairs    // first two bytes of all
	longest int       // bytes of the longest spelling of one of all
	lines   bool      // no spelling has a line feed in it
}

// A secretForm is one form of a secret. Each of its characters may be spelled in several ways.
type secretForm struct {
	form  []byte
	chars []*spelled
	fold  bool   // match in either case
	shown string // replacement
}

func newMask(secrets []Secret) *mask {
	m := &mask{words: &atomic.Pointer[words]{}}
	m.words.Store(newWords(secrets))
	return m
}

func newWords(secrets []Secret) *words {
	m := &words{pairs: &pairs{}, lines: true}
	for _, s := range secrets {
		if !s.isValue() || s.Value == "" { // no host receives it
			continue
		}
		seen := map[string]bool{}
		add := func(form string, fold bool) {
			if form == "" || seen[form] {
				return
			}
			seen[form] = true
			word := spell(form)
			m.all = append(m.all, secretForm{[]byte(form), word, fold, s.Placeholder})
			m.pairs.addWord(word, fold)
			m.longest = max(m.longest, longest(word))
			m.lines = m.lines && !strings.Contains(form, "\n")
			m.begins[form[0]] = true
			if fold {
				m.begins[strings.ToUpper(form)[0]] = true
			}
		}
		// HTTP removes white space around a field's value
		for _, value := range []string{s.Value, strings.Trim(s.Value, " \t")} {
			for _, form := range forms(value) {
				add(form, false)
			}
			add(hex.EncodeToString([]byte(value)), true)
		}
	}
	slices.SortStableFunc(m.all, func(a, b secretForm) int { return int(a.form[0]) - int(b.form[0]) })
	if len(m.all) > 0 {
		for _, b := range []byte(leads) {
			m.begins[b] = true
		}
	}
	return m
}

// forms returns the encodings in which a host may echo a value: plain, and base64. Hex and the
// spellings of characters are handled separately.
func forms(value string) []string {
	all := []string{value}
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

// within returns the part of a value's base64 that does not depend on the text around it, as in
// Basic authorization. The value starts before bytes into a group of three.
func within(encoding *base64.Encoding, value string, before int) string {
	whole := encoding.EncodeToString(append(make([]byte, before), value...))
	return whole[(8*before+5)/6 : 8*(before+len(value))/6]
}

// sameLength returns a mask that preserves lengths.
func (m *mask) sameLength() *mask {
	return &mask{words: m.words, stars: true}
}

// replace masks secrets in a complete text.
func (m *mask) replace(text string) string {
	ready, _ := m.hide([]byte(text), true)
	return string(ready)
}

// hide masks secrets in a text. If the text is not complete, rest is its end in which a secret may have begun. What
// rest has depends on line feeds and lengths only: if it depended on how the end resembles a secret, a host that
// repeats what the sandbox sends would tell the sandbox whether it guessed the first bytes of one.
func (m *mask) hide(text []byte, whole bool) (ready, rest []byte) {
	words := m.words.Load()
	out, from := make([]byte, 0, len(text)), 0
	until := len(text)
	if !whole {
		until = words.decided(text)
	}
	for i := 0; i < until; i++ {
		if !words.begins[text[i]] || i+1 < len(text) && !words.pairs.has(text[i], text[i+1]) {
			continue
		}
		end, shown := -1, ""
		var first *spelled
		may := false
		for w := range words.all {
			word := &words.all[w]
			if first != word.chars[0] { // consecutive words often share it
				first = word.chars[0]
				may = first.begins(text[i:])
			}
			if !may && (!word.fold || isLead[text[i]]) {
				continue
			}
			if at := match(word.chars, text[i:], word.fold); at > end {
				end, shown = at, word.shown
			}
		}
		if end <= 0 {
			continue
		}
		if m.stars {
			shown = strings.Repeat("*", end)
		}
		out = append(append(out, text[from:i]...), shown...)
		from = i + end
		i = from - 1
	}
	if until = max(until, from); until == len(text) {
		return append(out, text[from:]...), nil
	}
	return append(out, text[from:until]...), text[until:]
}

// decided returns the number of bytes at the start of an incomplete text at which a secret begins or not, whatever
// follows: those of whole lines, and those that the longest spelling separates from the end.
func (w *words) decided(text []byte) int {
	n := max(0, len(text)-max(0, w.longest-1))
	if w.lines {
		n = max(n, bytes.LastIndexByte(text, '\n')+1)
	}
	return n
}

// header masks secrets in a response's header fields. It deletes a field whose name contains
// one.
func (m *mask) header(h http.Header) {
	for name, values := range h {
		if m.names(name) {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i] = m.replace(v)
		}
	}
}

// names reports whether a field's name contains a secret in any case.
func (m *mask) names(field string) bool {
	words := m.words.Load()
	for i := range field {
		for w := range words.all {
			if match(words.all[w].chars, []byte(field[i:]), true) > 0 {
				return true
			}
		}
	}
	return false
}

// A maskedWriter masks secrets in the headers of a response and of the informational responses
// before it.
type maskedWriter struct {
	http.ResponseWriter
	mask *mask
}

func (w maskedWriter) WriteHeader(status int) {
	w.mask.header(w.Header())
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap supports http.ResponseController.
func (w maskedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// response masks secrets in a response. The caller masks the trailer's values, which follow the
// body.
func (m *mask) response(r *http.Response) {
	m.header(r.Header)
	m.header(r.Trailer) // the announced names
	// The host's reason phrase and protocol version could carry a secret.
	r.Status, r.Proto, r.ProtoMajor, r.ProtoMinor = "", "HTTP/1.1", 1, 1
	if r.StatusCode == http.StatusSwitchingProtocols {
		r.Trailer, r.TransferEncoding = nil, nil
		if host, ok := r.Body.(io.ReadWriteCloser); ok {
			r.Body = &frames{ReadWriteCloser: host, mask: m.sameLength()}
		}
		return
	}
	if reason := unreadable(r); reason != "" {
		r.Body.Close()
		text := "egress: cannot mask secrets in the host's response: " + reason + "\n"
		r.Body = io.NopCloser(strings.NewReader(text))
		r.StatusCode, r.ContentLength, r.Trailer = http.StatusBadGateway, int64(len(text)), nil
		r.Header = http.Header{"Content-Type": {"text/plain; charset=utf-8"},
			"Content-Length": {strconv.Itoa(len(text))}}
		return
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{&maskedReader{mask: m, from: r.Body}, r.Body}
	r.ContentLength = -1
	for _, name := range []string{"Content-Length", "Content-Md5", "Digest", "Content-Digest", "Repr-Digest",
		"Accept-Ranges"} {
		r.Header.Del(name)
	}
}

// partial are the request fields that ask for a part of a document, or for another form of it.
// They are removed: a secret cannot be recognized in parts.
var partial = []string{"Range", "If-Range", "Request-Range", "X-Ms-Range", "A-Im", "Accept-Charset"}

// unreadable returns why a response cannot be masked, or "" if it can. The request asked for
// none of these forms.
func unreadable(r *http.Response) string {
	if slices.ContainsFunc(r.Header["Content-Encoding"], func(s string) bool {
		return s != "" && !strings.EqualFold(s, "identity")
	}) {
		return "it is compressed"
	}
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	ofBytes := func(s string) bool {
		unit, which, _ := strings.Cut(strings.ToLower(strings.TrimSpace(s)), " ")
		refused := r.StatusCode == http.StatusRequestedRangeNotSatisfiable && unit == "bytes" &&
			strings.HasPrefix(strings.TrimSpace(which), "*/")
		return strings.HasPrefix(unit, "bytes") && !refused
	}
	if r.StatusCode == http.StatusPartialContent || r.StatusCode == http.StatusIMUsed ||
		strings.EqualFold(strings.TrimSpace(kind), "multipart/byteranges") ||
		slices.ContainsFunc(r.Header["Content-Range"], ofBytes) {
		return "it is only part of a document"
	}
	return ""
}

// A maskedReader masks secrets in a stream. It holds back the end of an incomplete line.
type maskedReader struct {
	mask  *mask
	from  io.Reader
	raw   []byte // read but not masked yet
	ready []byte
	err   error
	buf   []byte
}

func (r *maskedReader) Read(p []byte) (int, error) {
	for len(r.ready) == 0 {
		if r.err != nil {
			// The end of a truncated response may be the start of a secret.
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

// push masks the next bytes of a stream that has no Reader, and returns those that are ready.
func (r *maskedReader) push(b []byte) []byte {
	r.raw = append(r.raw, b...)
	r.release()
	ready := r.ready
	r.ready = nil
	return ready
}

// end returns the bytes held back, after the end of the stream.
func (r *maskedReader) end() []byte {
	ready, _ := r.mask.hide(r.raw, true)
	r.raw = nil
	return ready
}

// release moves bytes at which it is decided whether a secret begins from raw to ready.
func (r *maskedReader) release() {
	ready, rest := r.mask.hide(r.raw, false)
	r.ready, r.raw = ready, append(r.raw[:0], rest...)
}
