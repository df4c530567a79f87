package exchange

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"
)

// maxWhole is the largest request to a container that is read completely before it is
// passed on, in bytes.
const maxWhole = 256 << 10

// Duplex prepares a request whose answer may begin before the request has ended. A small
// one is read first. For a large or endless one the connection carries both ways at once
// and serves nothing afterwards: net/http cannot find the end of a body that was left
// unread then. done must be called after the answer.
func (x *Exchange) Duplex(r *http.Request) (_ *http.Request, done func(), _ error) {
	whole := r.WithContext(r.Context())
	if 0 <= r.ContentLength && r.ContentLength <= maxWhole {
		body, err := x.ReadBody(r, maxWhole)
		whole.Body = io.NopCloser(bytes.NewReader(body))
		return whole, func() {}, err
	}
	control := http.NewResponseController(x)
	if err := control.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, nil, err
	}
	x.Header().Set("Connection", "close")
	return r, func() { _ = control.SetReadDeadline(time.Now().Add(time.Second)) }, nil
}
