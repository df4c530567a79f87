package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/berth-run/berth"
)

// visitPath is the path at which a server connects containers of others to its own. It is served to other servers only.
const visitPath = "/cluster/visit"

// visitHeader has the Visit.
const visitHeader = "Berth-Visit"

// visitProtocol is the protocol to which a visit is upgraded: the bytes of the connection.
const visitProtocol = "tcp"

// A Visit is a connection from one container to a port of another one of its group.
type Visit struct {
	Project   berth.ProjectID   `json:"project"`
	From      berth.ContainerID `json:"from"`
	Container berth.ContainerID `json:"container"`
	Group     string            `json:"group"`
	Port      int               `json:"port"`
}

// Visit implements Placement.
func (p *Peers) Visit(ctx context.Context, server string, v Visit) (net.Conn, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode visit: %w", err)
	}
	// The connection outlives ctx, which bounds only its start.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, end)()
	r, err := http.NewRequestWithContext(life, http.MethodGet, "https://"+server+visitPath, nil)
	if err != nil {
		end()
		return nil, fmt.Errorf("visit at %s: %w", server, err)
	}
	r.Header.Set(visitHeader, string(text))
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", visitProtocol)
	resp, err := p.node.RoundTrip(r)
	if err != nil {
		end()
		return nil, unreachable(fmt.Errorf("visit at %s: %w", server, err))
	}
	stream, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode == http.StatusSwitchingProtocols && ok {
		return &visited{ReadWriteCloser: stream, end: end}, nil
	}
	defer end()
	defer resp.Body.Close()
	why, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if resp.StatusCode == http.StatusConflict {
		return nil, berth.Errorf(berth.CodeConflict, "%s", bytes.TrimSpace(why))
	}
	return nil, fmt.Errorf("visit at %s: it answered %s", server, resp.Status)
}

// A visited is this server's end of a connection to a container of another server.
type visited struct {
	io.ReadWriteCloser
	end context.CancelFunc

	mu   sync.Mutex
	over *time.Timer // closes the connection at its deadline; nil before the first one
}

func (c *visited) Close() error {
	c.mu.Lock()
	if c.over != nil {
		c.over.Stop()
	}
	c.mu.Unlock()
	defer c.end()
	return c.ReadWriteCloser.Close()
}

// CloseWrite ends one direction.
func (c *visited) CloseWrite() error { return closeWrite(c.ReadWriteCloser) }

// SetReadDeadline implements net.Conn. A deadline that passes ends the connection.
func (c *visited) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over == nil:
		c.over = time.AfterFunc(time.Until(t), func() { c.end(); c.ReadWriteCloser.Close() })
	default:
		c.over.Reset(time.Until(t))
	}
	return nil
}

// The rest of net.Conn. Writes end with reads, and the addresses say nothing.

func (c *visited) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *visited) SetWriteDeadline(time.Time) error { return nil }
func (c *visited) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *visited) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

func closeWrite(c io.Closer) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// serveVisit serves Visit.
func serveVisit(w http.ResponseWriter, r *http.Request, visit func(context.Context, Visit) (net.Conn, error)) {
	var v Visit
	if err := json.Unmarshal([]byte(r.Header.Get(visitHeader)), &v); err != nil {
		http.Error(w, "invalid "+visitHeader, http.StatusBadRequest)
		return
	}
	inner, err := visit(r.Context(), v)
	if e, ok := errors.AsType[*berth.Error](err); ok && e.Code == berth.CodeConflict {
		http.Error(w, e.Message, http.StatusConflict)
		return
	}
	if err != nil {
		http.Error(w, "the container cannot be reached", http.StatusBadGateway)
		return
	}
	defer inner.Close()
	outer, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "no upgrade", http.StatusInternalServerError)
		return
	}
	defer outer.Close()
	if err := outer.SetDeadline(time.Time{}); err != nil {
		return
	}
	if _, err := io.WriteString(outer, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
		visitProtocol+"\r\n\r\n"); err != nil {
		return
	}
	carry(outer, buffered.Reader, inner)
}

// carry copies in both directions until both have ended. in has what was read ahead of outer.
func carry(outer net.Conn, in *bufio.Reader, inner net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := io.Copy(inner, in); err != nil || closeWrite(inner) != nil {
			inner.Close()
		}
	}()
	if _, err := io.Copy(outer, inner); err != nil || closeWrite(outer) != nil {
		outer.Close()
	}
	<-done
}
