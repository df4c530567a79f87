package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

const (
	recordHandshake = 0x16     // the first byte of a TLS connection
	tlsMajor        = 0x03     // the second byte: of its version
	maxHello        = 64 << 10 // of a first handshake message
)

var errSeen = errors.New("the first message was seen")

// helloName reads the first message of a TLS handshake and returns the server name
// in it, "" if there is none, and what was read. crypto/tls does the reading, so
// that a message in many pieces is understood as a server would.
func helloName(client net.Conn) (name string, seen []byte, err error) {
	tap := &tapped{Reader: io.LimitReader(client, maxHello)}
	found := false
	err = tls.Server(tap, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, found = h.ServerName, true
		return nil, errSeen
	}}).Handshake()
	if found {
		err = nil
	}
	return name, tap.seen.Bytes(), err
}

// A tapped connection keeps what is read and drops what is written.
type tapped struct {
	io.Reader
	seen bytes.Buffer
}

func (t *tapped) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	t.seen.Write(p[:n])
	return n, err
}

func (*tapped) Write(p []byte) (int, error)      { return len(p), nil }
func (*tapped) Close() error                     { return nil }
func (*tapped) LocalAddr() net.Addr              { return nil }
func (*tapped) RemoteAddr() net.Addr             { return nil }
func (*tapped) SetDeadline(time.Time) error      { return nil }
func (*tapped) SetReadDeadline(time.Time) error  { return nil }
func (*tapped) SetWriteDeadline(time.Time) error { return nil }

// httpMethods are the beginnings of common HTTP/1 requests, and of HTTP/2 without TLS.
var httpMethods = []string{"GET ", "POST ", "PUT ", "HEAD ", "DELETE ", "PATCH ", "OPTIONS ", "CONNECT ", "TRACE ", "PROPFIND ", "REPORT ", "PRI "}

// A verdict is what the beginning of a connection tells.
type verdict int

const (
	notYet verdict = iota // more bytes would tell
	isHTTP
	notHTTP
)

// Bounds on what is looked at: the name of a method, with the empty lines that many
// hosts skip before it, and the line that it begins.
const (
	maxMethod = 64
	maxLine   = 4 << 10
)

// looksLikeHTTP tells whether what comes next is an HTTP request, of any method. It
// waits for no more bytes than tell; notYet is when no more come.
func looksLikeHTTP(in *bufio.Reader) verdict {
	for n := 1; ; n++ {
		head, err := in.Peek(n)
		if v := sniffHTTP(head); v != notYet || err != nil {
			return v
		}
	}
}

// sniffHTTP tells whether a connection that begins like this carries HTTP requests.
func sniffHTTP(head []byte) verdict {
	line := bytes.TrimLeft(head[:min(len(head), maxMethod)], "\r\n")
	begins := min(len(head), maxMethod) - len(line)
	end := bytes.IndexFunc(line, func(r rune) bool { return !isToken(r) })
	switch {
	case end < 0 && len(head) < maxMethod:
		return notYet
	case end <= 0 || line[end] != ' ' && line[end] != '\t':
		return notHTTP
	case slices.Contains(httpMethods, string(line[:end+1])):
		return isHTTP
	}
	return sniffTarget(head[begins+end:], len(head))
}

// sniffTarget looks at what follows a method that is not common: a path or a whole
// address, then the version.
func sniffTarget(rest []byte, seen int) verdict {
	const scheme = "http"
	rest = bytes.ToLower(bytes.TrimLeft(rest, " \t"))
	target, version, _ := bytes.Cut(rest, []byte(" "))
	switch {
	case seen >= maxLine:
		return isHTTP // no other protocol is known to begin so
	case len(target) == 0:
		return notYet
	case target[0] != '/' && target[0] != '*' && !bytes.HasPrefix(target, []byte(scheme)[:min(len(target), len(scheme))]):
		return notHTTP
	case bytes.HasPrefix(bytes.TrimLeft(version, " \t"), []byte("http/")):
		return isHTTP
	case bytes.IndexByte(rest, '\n') >= 0:
		return notHTTP
	}
	return notYet
}

// isToken reports whether a character may be in the name of a method: RFC 9110, 5.6.2.
func isToken(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c < 0x80 && strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

// A suspect connection could not be told from an HTTP request by what came at first.
// It passes on what comes as long as that is so.
type suspect struct {
	net.Conn
	seen []byte // nil when it is none
}

// CloseWrite tells the sandbox that nothing more comes.
func (s *suspect) CloseWrite() error { return closeWrite(s.Conn) }

func newSuspect(conn net.Conn) *suspect { return &suspect{conn, make([]byte, 0, 64)} }

func (s *suspect) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if s.seen == nil {
		return n, err
	}
	s.seen = append(s.seen, p[:n]...)
	switch sniffHTTP(s.seen) {
	case isHTTP:
		return 0, refusal("a request that came in pieces")
	case notHTTP:
		s.seen = nil
	}
	return n, err
}
