package preview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// tunnelProtocol is the protocol in the Upgrade header of a request for a TCP connection.
const tunnelProtocol = "tcp"

// Connect serves GET /v1/containers/{container}/ports/{port}: an upgrade to a raw TCP
// connection to the port. The command berth port uses it.
func (d *Door) Connect(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	port, err := portNumber(r)
	if err != nil {
		return err
	}
	if !r.ProtoAtLeast(1, 1) || !exchange.HeaderHas(r.Header, "Connection", "upgrade") || !exchange.HeaderHas(r.Header,
		"Upgrade", tunnelProtocol) {
		x.Header().Set("Connection", "Upgrade")
		x.Header().Set("Upgrade", tunnelProtocol)
		x.Error(http.StatusUpgradeRequired, exchange.Error{Type: exchange.TypeInvalid,
			Code:    exchange.OrNull("upgrade_required"),
			Message: "Upgrade required. Send the headers 'Connection: Upgrade' and 'Upgrade: tcp' for a TCP connection, request a path below this one for HTTP, or use POST to create a link."})
		return nil
	}
	dial, release, err := d.Containers.Access().Port(r.Context(), c, containerOf(r), port)
	if err != nil {
		return err
	}
	defer release()
	inner, err := dial(r.Context())
	if err != nil {
		return x.FailQuietly(err)
	}
	inner = Impatient(inner)
	defer inner.Close()
	outer, err := hijack(x)
	if err != nil {
		return err
	}
	defer outer.Close()
	if _, err := io.WriteString(outer,
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+tunnelProtocol+"\r\n\r\n"); err != nil {
		return nil
	}
	carry(r.Context(), outer, inner)
	return nil
}

// carry copies bytes in both directions until both have ended or ctx is done.
func carry(ctx context.Context, outer, inner net.Conn) {
	stop := context.AfterFunc(ctx, func() {
		outer.Close()
		inner.Close()
	})
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pump(inner, outer)
	}()
	pump(outer, inner)
	<-done
}

// pump copies until from ends, then closes to for writing.
func pump(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil || closeWrite(to) != nil {
		to.Close()
	}
}

// hijack hijacks a request's connection. The bytes that the server has read ahead are
// peeked, because reading them would end the request's context with the connection.
func hijack(x *exchange.Exchange) (net.Conn, error) {
	conn, buffered, err := http.NewResponseController(x).Hijack()
	if err != nil {
		return nil, fmt.Errorf("take over the connection: %w", err)
	}
	ahead, err := buffered.Peek(buffered.Reader.Buffered())
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &readAhead{Conn: conn, ahead: ahead}, conn.SetDeadline(time.Time{})
}

// A readAhead is a connection whose first bytes were already read.
type readAhead struct {
	net.Conn
	ahead []byte
}

func (c *readAhead) Read(p []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(p, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

func (c *readAhead) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if c, ok := c.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}
