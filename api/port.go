package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/rule"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/preview"
	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/store"
)

// Links to ports last this long unless a request says otherwise, in seconds.
const (
	linkLife    = 60 * 60
	maxLinkLife = 7 * 24 * 60 * 60
)

// linkPath begins the path of a link. What follows is the permission.
const linkPath = "/preview/"

// linkBody checks the body of POST /v1/containers/{container}/ports/{port}.
var linkBody = rule.Object(rule.Fields{
	"expires_after": rule.Object(rule.Fields{"anchor": rule.OneOf("created_at"), "seconds": rule.Integer(10, maxLinkLife)}, "anchor", "seconds"),
})

// portNumber returns the port that the path names.
func portNumber(r *http.Request) (int, error) {
	text := r.PathValue("port")
	port, err := strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 || strconv.Itoa(port) != text {
		return 0, berth.Invalid("port", "Invalid port: '%s'. Expected a number from 1 to 65535.", rule.Clip(text))
	}
	return port, nil
}

// port serves /v1/containers/{container}/ports/{port}/…: what a sandbox serves
// there in HTTP, for a program that bears a key.
func (s *server) port(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	port, err := portNumber(r)
	if err != nil {
		return err
	}
	prefix, rest := cutPath(r, 5) // v1, containers, its id, ports, the number
	return s.show(x, r, c.Project, preview.Target{Container: containerID(r), Port: port, Prefix: prefix, Path: rest, Keyed: true})
}

// cutPath splits a URL's path, as escaped, after its first n segments.
func cutPath(r *http.Request, n int) (first, rest string) {
	path := r.URL.EscapedPath()
	at := 0
	for range n {
		at += 1 + max(0, strings.IndexByte(path[at+1:], '/'))
	}
	return path[:at], path[at:]
}

// show passes a request on to a port of a container, which is held against expiry
// as long as the answer lasts.
func (s *server) show(x *exchange.Exchange, r *http.Request, p berth.ProjectID, t preview.Target) error {
	conns.Known(r.Context())
	dial, release, err := s.Containers.Access().Port(r.Context(), p, t.Container, t.Port)
	if err != nil {
		return err
	}
	defer release()
	t.Dial = dial
	r, done, err := x.Duplex(r)
	if err != nil {
		return err
	}
	defer done()
	out := x.Patient()
	defer out.Renew() // the last bytes leave after the handler
	return x.FailQuietly(s.previews.Serve(out, r, t))
}

// A portLink is a link to a port on the wire.
type portLink struct {
	Object      string            `json:"object"` // "container.port"
	ContainerID berth.ContainerID `json:"container_id"`
	Port        int               `json:"port"`
	URL         string            `json:"url"`
	HostURL     string            `json:"host_url,omitempty"` // under the port's own host, where the server has a domain for them
	ExpiresAt   int64             `json:"expires_at"`
}

// createLink serves POST /v1/containers/{container}/ports/{port}: a URL that shows
// the port to whoever has it, for a while.
func (s *server) createLink(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	port, err := portNumber(r)
	if err != nil {
		return err
	}
	body := struct {
		ExpiresAfter struct {
			Seconds int64 `json:"seconds"`
		} `json:"expires_after"`
	}{}
	body.ExpiresAfter.Seconds = linkLife
	if r.ContentLength != 0 {
		if err := x.Decode(r, linkBody, &body); err != nil {
			return err
		}
	}
	if _, err := s.Containers.Get(r.Context(), c.Project, containerID(r)); err != nil {
		return err
	}
	l := preview.Link{Project: c.Project, Container: containerID(r), Port: port,
		ExpiresAt: s.Now().Unix() + body.ExpiresAfter.Seconds}
	if c.Key != "" {
		hash := sha256.Sum256([]byte(exchange.Token(r)))
		l.Key = hash[:]
	}
	word := l.Seal(s.Seal)
	return x.JSON(http.StatusOK, portLink{"container.port", l.Container, l.Port, origin(r) + linkPath + word + "/", s.hostURL(r, l, word), l.ExpiresAt})
}

// origin returns the origin under which a caller, who is believed about it, sees
// this server.
func origin(r *http.Request) string {
	if r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// showLink serves /preview/{link}/…, for whoever has it.
func (s *server) showLink(w http.ResponseWriter, r *http.Request) {
	x := w.(*exchange.Exchange)
	err := func() error {
		l, err := preview.Open(s.Seal, r.PathValue("link"), s.Now())
		if err == nil {
			err = s.checkLink(r, l)
		}
		if err != nil {
			return &berth.Error{Code: berth.CodeUnauthorized, Wire: "invalid_link", Err: err, Message: "This link has expired or is not valid."}
		}
		x.SetCaller(berth.Caller{Project: l.Project})
		prefix, rest := cutPath(r, 2) // preview, the link
		return s.show(x, r, l.Project, preview.Target{Container: l.Container, Port: l.Port, Prefix: prefix, Path: rest, Link: true, Keyed: exchange.Token(r) != ""})
	}()
	if err != nil {
		x.Fail(r.Context(), linkPath, err)
	}
}

// checkLink returns an error unless who made a link may still ask.
func (s *server) checkLink(r *http.Request, l preview.Link) error {
	if err := s.ex.CheckProject(r.Context(), l.Project); err != nil {
		return err
	}
	if len(l.Key) == sha256.Size {
		key, err := s.Keys.KeyByHash(r.Context(), [sha256.Size]byte(l.Key))
		switch {
		case err != nil:
			return err
		case key.Project != l.Project || key.ExpiresAt != 0 && key.ExpiresAt <= s.Now().Unix():
			return store.ErrNotFound
		}
		return nil
	}
	open, err := s.ex.NeedsNoKey(r.Context())
	if err == nil && !open {
		err = errors.New("the link is from before there were keys")
	}
	if err != nil {
		return err
	}
	return exchange.CheckPeer(r)
}

// tunnelProtocol is what a request asks to upgrade to, to get the bytes of a port.
const tunnelProtocol = "tcp"

// connectPort serves GET /v1/containers/{container}/ports/{port}: an upgrade to a TCP
// connection to the port, of any protocol. It serves berth port.
func (s *server) connectPort(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	port, err := portNumber(r)
	if err != nil {
		return err
	}
	if !r.ProtoAtLeast(1, 1) || !exchange.HeaderHas(r.Header, "Connection", "upgrade") || !exchange.HeaderHas(r.Header, "Upgrade", tunnelProtocol) {
		x.Header().Set("Connection", "Upgrade")
		x.Header().Set("Upgrade", tunnelProtocol)
		x.Error(http.StatusUpgradeRequired, exchange.Error{Type: exchange.TypeInvalid, Code: exchange.OrNull("upgrade_required"),
			Message: "Connect with 'Connection: Upgrade' and 'Upgrade: tcp', ask for a path below this one, or POST here for a link."})
		return nil
	}
	dial, release, err := s.Containers.Access().Port(r.Context(), c.Project, containerID(r), port)
	if err != nil {
		return err
	}
	defer release()
	inner, err := dial(r.Context())
	if err != nil {
		return x.FailQuietly(err)
	}
	inner = preview.Impatient(inner)
	defer inner.Close()
	outer, err := hijack(x)
	if err != nil {
		return err
	}
	defer outer.Close()
	if _, err := io.WriteString(outer, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+tunnelProtocol+"\r\n\r\n"); err != nil {
		return nil
	}
	carry(r.Context(), outer, inner)
	return nil
}

// carry carries bytes both ways until both directions have ended, or ctx has.
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

// pump copies to the end of what comes, and tells it.
func pump(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil || closeWrite(to) != nil {
		to.Close()
	}
}

// hijack takes a request's connection out of HTTP. Reading what the server has read
// ahead would end the request's context with the connection.
func hijack(x *exchange.Exchange) (net.Conn, error) {
	conn, buffered, err := http.NewResponseController(x).Hijack()
	if err != nil {
		return nil, err
	}
	ahead, err := buffered.Peek(buffered.Reader.Buffered())
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &readAhead{Conn: conn, ahead: ahead}, conn.SetDeadline(time.Time{})
}

// A readAhead is a connection of which some has been read.
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
