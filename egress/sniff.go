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
	tlsMajor        = 0x03     // the second byte, of the version
	maxHello        = 64 << 10 // bound on the first handshake message
)

var errSeen = errors.New("client hello was read")

// helloName reads the first message of a TLS handshake. It returns the server name in it, or ""
// if it has none, and the bytes read. It uses crypto/tls, which reassembles a message in
// fragments as a server would.
func helloName(client net.Conn) (name string, seen []byte, err error) {
	tap := &tappedConn{Reader: io.LimitReader(client, maxHello)}
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

// A tappedConn connection records reads and discards writes.
type tappedConn struct {
	io.Reader
	seen bytes.Buffer
}

func (t *tappedConn) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	t.seen.Write(p[:n])
	return n, err
}

func (*tappedConn) Write(p []byte) (int, error)      { return len(p), nil }
func (*tappedConn) Close() error                     { return nil }
func (*tappedConn) LocalAddr() net.Addr              { return nil }
func (*tappedConn) RemoteAddr() net.Addr             { return nil }
func (*tappedConn) SetDeadline(time.Time) error      { return nil }
func (*tappedConn) SetReadDeadline(time.Time) error  { return nil }
func (*tappedConn) SetWriteDeadline(time.Time) error { return nil }

// looksLikeHTTP reports whether an HTTP request of any method follows. It reads no more bytes
// than it needs. It returns notYet if the input ends early, or if only a lenient host would
// parse it; then a suspect watches the rest.
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

// A suspect is a connection that may still turn out to carry an HTTP request. Its Read fails
// when it does.
type suspect struct {
	net.Conn
	sniffer sniffer
}

// CloseWrite signals the end of data to the sandbox.
func (s *suspect) CloseWrite() error { return closeWrite(s.Conn) }

func (s *suspect) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if s.sniffer.verdict == notYet && s.sniffer.add(p[:n]) == isHTTP {
		return 0, refusal("an HTTP request in pieces or in an unusual form")
	}
	return n, err
}
