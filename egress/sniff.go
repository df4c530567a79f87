package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
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

// looksLikeHTTP tells whether what comes next is an HTTP request, of any method. It
// waits for no more bytes than tell; notYet is when no more come, or when only a
// lenient host would read on. A suspect watches what comes then.
func looksLikeHTTP(in *bufio.Reader) verdict {
	var s sniffer
	for n := 1; ; n++ {
		head, err := in.Peek(n)
		if err != nil {
			return s.verdict
		}
		if v := s.add(head[n-1:]); v != notYet || s.odd {
			return v
		}
	}
}

// A suspect is a connection whose first bytes may be those of an HTTP request. It passes on
// bytes as long as they may be one.
type suspect struct {
	net.Conn
	sniffer sniffer
}

// CloseWrite tells the sandbox that nothing more comes.
func (s *suspect) CloseWrite() error { return closeWrite(s.Conn) }

func (s *suspect) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if s.sniffer.verdict == notYet && s.sniffer.add(p[:n]) == isHTTP {
		return 0, refusal("a request that came in pieces, or in an odd form")
	}
	return n, err
}
