package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"time"
)

const (
	recordHandshake = 0x16     // the first byte of a TLS connection
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

// httpMethods are the beginnings of HTTP/1 requests, and of HTTP/2 without TLS.
var httpMethods = []string{"GET ", "POST ", "PUT ", "HEAD ", "DELETE ", "PATCH ", "OPTIONS ", "CONNECT ", "TRACE ", "PROPFIND ", "REPORT ", "PRI "}

// looksLikeHTTP reports whether what comes next is an HTTP request. It waits for
// no more bytes than tell.
func looksLikeHTTP(in *bufio.Reader) bool {
	for n := 1; n <= 10; n++ {
		head, err := in.Peek(n)
		possible := false
		for _, m := range httpMethods {
			if n >= len(m) && strings.HasPrefix(string(head), m) {
				return true
			}
			possible = possible || strings.HasPrefix(m, string(head))
		}
		if err != nil || !possible {
			return false
		}
	}
	return false
}
