package ssh

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/berth-run/berth/audit"
)

// forwardRequest is a channel of type direct-tcpip, or forwarded-tcpip, RFC 4254, section 7.2.
type forwardRequest struct {
	Host       string
	Port       uint32
	OriginHost string
	OriginPort uint32
}

// forward connects a channel to a port of the container.
func (c *conn) forward(nc ssh.NewChannel) {
	var req forwardRequest
	if ssh.Unmarshal(nc.ExtraData(), &req) != nil || req.Port < 1 || req.Port > 65535 {
		_ = nc.Reject(ssh.ConnectionFailed, "this is not a port")
		return
	}
	switch {
	case c.noPorts:
		_ = nc.Reject(ssh.Prohibited, "the certificate does not permit port forwarding")
		return
	case c.container == "":
		_ = nc.Reject(ssh.ConnectionFailed, "there is no such container")
		return
	case !c.isItself(req.Host):
		_ = nc.Reject(ssh.Prohibited, "only ports of the container itself can be reached, as localhost")
		return
	}
	ctx, end := context.WithCancel(c.ctx)
	defer end()
	remote, problem := c.dialPort(ctx, int(req.Port))
	if problem != "" {
		_ = nc.Reject(ssh.ConnectionFailed, problem)
		return
	}
	defer remote.Close()
	ch, requests, err := nc.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	go ssh.DiscardRequests(requests)
	c.record(audit.Entry{Action: audit.SSHForwarded, Port: int(req.Port), Reason: "local"})
	carry(ctx, ch, remote)
}

// isItself reports whether a host of a forwarding is the container.
func (c *conn) isItself(host string) bool {
	switch strings.ToLower(strings.TrimSuffix(host, ".")) {
	case "localhost", "127.0.0.1", "::1", "0.0.0.0", "::", strings.ToLower(c.user), string(c.container):
		return true
	}
	return false
}

// dialPort connects to a port of the container, or returns why it cannot.
func (c *conn) dialPort(ctx context.Context, port int) (io.ReadWriteCloser, string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://berth/v1/containers/"+url.PathEscape(string(c.container))+"/ports/"+strconv.Itoa(port), nil)
	if err != nil {
		return nil, "the port cannot be reached"
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "tcp")
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, "the container does not answer"
	}
	remote, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode == http.StatusSwitchingProtocols && ok {
		return remote, ""
	}
	resp.Body.Close()
	if resp.StatusCode == http.StatusBadGateway {
		return nil, "nothing listens on the port"
	}
	return nil, "the port cannot be reached"
}

// A stream is a connection of which one side can be closed.
type stream interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// carry copies bytes in both directions until both have ended or ctx is done.
func carry(ctx context.Context, a stream, b io.ReadWriteCloser) {
	stop := context.AfterFunc(ctx, func() {
		a.Close()
		b.Close()
	})
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pump(b, a)
	}()
	pump(a, b)
	<-done
}

// pump copies until from ends, and closes to for writing.
func pump(to io.WriteCloser, from io.Reader) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); err != nil || !ok || half.CloseWrite() != nil {
		to.Close()
	}
}

// mayListen returns why the container may not reach the client's network, or "": what the client forwards would be a
// way round the policy of the container.
func (c *conn) mayListen(ctx context.Context) string {
	box, err := c.door.opts.Containers.Get(ctx, c.caller.Project, c.container)
	switch {
	case err != nil:
		return "the container was not found"
	case box.NetworkPolicy.Type != "open":
		return "the network policy of the container is not open"
	}
	return ""
}
