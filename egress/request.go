package egress

import (
	"bytes"
	"slices"
	"strings"
)

// A verdict classifies a connection by its first bytes.
type verdict int

const (
	notYet verdict = iota // more bytes are needed
	isHTTP
	notHTTP
)

// A sniffer detects HTTP requests on a connection from the first line. It parses that line as
// the most lenient common hosts do: it skips any number of empty lines and white space before
// it; it accepts any white space between words (Python's http.server accepts Unicode's); it
// accepts any word as a method; the version may be missing, or RTSP's or Icecast's (Node
// accepts these). Go's strict server answers what it classifies as HTTP, so a request in an odd
// form is refused.
//
// The zero value is ready to use. It holds only a few bytes of even a long line.
type sniffer struct {
	verdict verdict
	odd     bool // the method is not a token: few hosts accept that, and most other protocols start so

	total  int  // bytes since the start of the first word
	words  int  // started so far
	inside bool // inside of a word
	word   []byte
	method []byte
	target targetForm
	opens  []byte // first bytes of the connection, compared with proxyPreface
}

// A targetForm classifies a request's second word.
type targetForm struct{ path, address, star bool }

const (
	maxWord = 64 // stored bytes of a word

	// A method and a target of maxSure bytes are a request in any case: no other known
	// protocol starts so. No host reads a line beyond maxRequestLine.
	maxSure        = 4 << 10
	maxRequestLine = 128 << 10
)

// proxyPreface starts a connection on which a proxy declares its client's address (PROXY
// protocol, version 2). A request follows it. A sandbox is not a proxy.
const proxyPreface = "\r\n\r\n\x00\r\nQUIT\n"

// httpMethods are common methods of HTTP/1, and PRI of HTTP/2 without TLS. A line that
// starts with one is a request.
var httpMethods = []string{"GET", "POST", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "PROPFIND",
	"REPORT", "PRI"}

// add reads the next bytes of the connection and returns the verdict.
func (s *sniffer) add(b []byte) verdict {
	for _, c := range b {
		if s.verdict != notYet {
			break
		}
		s.next(c)
	}
	return s.verdict
}

func (s *sniffer) next(c byte) {
	if len(s.opens) < len(proxyPreface) {
		if s.opens = append(s.opens, c); string(s.opens) == proxyPreface {
			s.verdict = isHTTP
			return
		}
	}
	if isBlank(c) {
		s.blank(c == '\n')
	} else {
		s.character(c)
	}
	if s.words == 0 || s.verdict != notYet {
		return
	}
	switch s.total++; {
	case s.total >= maxSure && !s.odd && s.words >= 2 && s.target != targetForm{}:
		s.verdict = isHTTP
	case s.total >= maxRequestLine:
		s.verdict = notHTTP
	}
}

// character handles a byte of a word.
func (s *sniffer) character(c byte) {
	if !s.inside {
		s.inside, s.words, s.word = true, s.words+1, s.word[:0]
	}
	if len(s.word) < maxWord {
		s.word = append(s.word, c)
	}
	switch s.words {
	case 1:
		s.odd = s.odd || !isToken(c) || len(s.word) == maxWord
	case 2:
		s.readTarget()
	default:
		if !s.odd && s.isVersion() {
			s.verdict = isHTTP
		}
	}
}

// blank handles white space, which may end a word and the line.
func (s *sniffer) blank(newline bool) {
	if s.words == 0 {
		return
	}
	if s.inside {
		s.inside = false
		switch s.words {
		case 1:
			s.method = bytes.Clone(s.word)
			if !s.odd && slices.Contains(httpMethods, string(s.method)) {
				s.verdict = isHTTP
			}
		case 2:
			s.endTarget()
		}
	}
	if !newline || s.verdict != notYet || strings.HasPrefix(proxyPreface, string(s.opens)) {
		return
	}
	s.verdict = notHTTP
	if s.words == 3 && s.isVersion() {
		s.verdict = isHTTP
	}
}

// isVersion reports whether the current or last word starts like a version.
func (s *sniffer) isVersion() bool {
	return slices.ContainsFunc([]string{"http/", "rtsp/", "ice/"}, func(name string) bool {
		return len(s.word) >= len(name) && strings.EqualFold(string(s.word[:len(name)]), name)
	})
}

func (s *sniffer) readTarget() {
	s.target = targetForm{
		path:    s.word[0] == '/',
		address: bytes.Contains(s.word, []byte("://")),
		star:    string(s.word) == "*",
	}
}

// endTarget classifies a line that may end after a method and a target. It is then a request of
// HTTP/0.9, after which some hosts accept header fields. A method in lower case belongs to
// another protocol ("get /key").
func (s *sniffer) endTarget() {
	switch {
	case s.odd:
	case s.target != targetForm{} && !bytes.ContainsFunc(s.method, func(r rune) bool { return 'a' <= r && r <= 'z' }):
		s.verdict = isHTTP
	case string(s.method) == "PROXY" && slices.Contains([]string{"TCP4", "TCP6", "UNKNOWN"}, string(s.word)):
		s.verdict = isHTTP // version 1 of the preface
	}
}

// isBlank reports whether a byte is white space for any host.
func isBlank(c byte) bool {
	return '\t' <= c && c <= '\r' || 0x1c <= c && c <= ' ' || c == 0x85 || c == 0xa0
}

// isToken reports whether a byte may be in the name of a method: RFC 9110, 5.6.2.
func isToken(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c < 0x80 &&
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
