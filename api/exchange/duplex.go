package exchange

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// maxWhole is the size in bytes up to which a request to a container is read completely
// before it is forwarded.
const maxWhole = 256 << 10

// Duplex prepares a request whose answer may start before the whole request has arrived.
// It reads a small request first. For a large, endless or encoded one, it enables full duplex and
// closes the connection after the answer, because net/http then cannot find the end of an
// unread body. The caller must call done after the answer.
//
// A connection of HTTP/2 stays open: there, only the stream ends, and the servers of a cluster
// have many requests on one connection.
func (x *Exchange) Duplex(r *http.Request) (_ *http.Request, done func(), _ error) {
	whole := r.WithContext(r.Context())
	// ReadBody removes an encoding; the guest or the program gets the body as it was sent.
	if 0 <= r.ContentLength && r.ContentLength <= maxWhole && r.Header.Get("Content-Encoding") == "" {
		body, err := x.ReadBody(r, maxWhole)
		whole.Body = io.NopCloser(bytes.NewReader(body))
		return whole, func() {}, err
	}
	control := http.NewResponseController(x)
	if err := control.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, nil, fmt.Errorf("read and write at the same time: %w", err)
	}
	if r.ProtoMajor < 2 {
		x.Header().Set("Connection", "close")
	}
	return r, func() { _ = control.SetReadDeadline(time.Now().Add(time.Second)) }, nil
}
