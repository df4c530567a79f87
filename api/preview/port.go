package preview

import (
	"crypto/cipher"
	"crypto/sha256"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/internal/rule"
)

// The default and maximum life of links, in seconds.
const (
	linkLife    = 60 * 60
	maxLinkLife = 7 * 24 * 60 * 60
)

// LinkPath is the prefix of the paths of links. The sealed link follows.
const LinkPath = "/preview/"

// LinkBody checks the body of POST /v1/containers/{container}/ports/{port}.
var LinkBody = rule.Object(rule.Fields{
	"expires_after": rule.Object(rule.Fields{"anchor": rule.OneOf("created_at"), "seconds": rule.Integer(10,
		maxLinkLife)}, "anchor", "seconds"),
})

// A LinkRequest is the body of POST /v1/containers/{container}/ports/{port}.
type LinkRequest struct {
	ExpiresAfter struct {
		Anchor  string `json:"anchor"` // "created_at"
		Seconds int64  `json:"seconds"`
	} `json:"expires_after"`
}

// Options are what the door needs.
type Options struct {
	Exchange   *exchange.Server // the API's identity, keys and log
	Containers *container.Service
	Box        cipher.AEAD      // encrypts links; from seal.New
	Now        func() time.Time // the clock for the expiry of links

	// Domain is the parent domain of the host names of ports, PORT-CONTAINER.DOMAIN. If it
	// is empty, ports have no hosts.
	Domain string
}

// A Door serves the ports of containers.
type Door struct {
	Options
	proxy *Proxy
}

// NewDoor returns a door.
func NewDoor(opts Options) *Door { return &Door{Options: opts, proxy: New(opts.Exchange.Log)} }

// containerOf returns the container id of the request's path.
func containerOf(r *http.Request) berth.ContainerID {
	return berth.ContainerID(r.PathValue("container"))
}

// portNumber returns the port of the request's path.
func portNumber(r *http.Request) (int, error) {
	text := r.PathValue("port")
	port, err := strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 || strconv.Itoa(port) != text {
		return 0, berth.Invalid("port", "Invalid port: '%s'. Expected a number from 1 to 65535.", rule.Clip(text))
	}
	return port, nil
}

// Port serves /v1/containers/{container}/ports/{port}/…: the HTTP server on a port of a
// sandbox, for clients with a key.
func (d *Door) Port(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	port, err := portNumber(r)
	if err != nil {
		return err
	}
	prefix, rest := cutPath(r, 5) // v1, containers, its id, ports, the number
	return d.show(x, r, c, Target{Container: containerOf(r), Port: port, Prefix: prefix, Path: rest,
		Keyed: true})
}

// cutPath splits the escaped path of a URL after its first n segments.
func cutPath(r *http.Request, n int) (first, rest string) {
	path := r.URL.EscapedPath()
	at := 0
	for range n {
		at += 1 + max(0, strings.IndexByte(path[at+1:], '/'))
	}
	return path[:at], path[at:]
}

// show forwards a request to a port of a container. The container does not expire before the
// answer is complete.
func (d *Door) show(x *exchange.Exchange, r *http.Request, c berth.Caller, t Target) error {
	conns.Known(r.Context())
	dial, release, err := d.Containers.Access().Port(r.Context(), c, t.Container, t.Port)
	if err != nil {
		return x.Elsewhere(r, err)
	}
	defer release()
	t.Dial = dial
	if t.Strip != nil {
		r = r.Clone(r.Context())
		t.Strip(r)
	}
	r, done, err := x.Duplex(r)
	if err != nil {
		return err
	}
	defer done()
	out := x.Patient()
	defer out.Renew() // the server sends the last bytes after the handler returns
	return x.FailQuietly(d.proxy.Serve(out, r, t))
}

// A PortLink is the JSON of a link to a port.
type PortLink struct {
	Object      string            `json:"object"` // "container.port"
	ContainerID berth.ContainerID `json:"container_id"`
	Port        int               `json:"port"`
	URL         string            `json:"url"`
	HostURL     string            `json:"host_url,omitempty"` // under the port's own host, if the server has a domain
	ExpiresAt   int64             `json:"expires_at"`
}

// CreateLink serves POST /v1/containers/{container}/ports/{port}. It creates a URL with which
// any client can access the port until the URL expires.
func (d *Door) CreateLink(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	port, err := portNumber(r)
	if err != nil {
		return err
	}
	var body LinkRequest
	body.ExpiresAfter.Seconds = linkLife
	if r.ContentLength != 0 {
		if err := x.Decode(r, LinkBody, &body); err != nil {
			return err
		}
	}
	l, err := d.NewLink(r, c, containerOf(r), port, time.Duration(body.ExpiresAfter.Seconds)*time.Second)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, l)
}

// NewLink returns a link to a port, which works for a time. The request tells the server's address and the key on which
// the link depends.
func (d *Door) NewLink(r *http.Request, c berth.Caller, id berth.ContainerID, port int, life time.Duration) (*PortLink,
	error) {
	if _, err := d.Containers.Get(r.Context(), c.Project, id); err != nil {
		return nil, err
	}
	l := Link{Project: c.Project, Container: id, Port: port, ExpiresAt: d.Now().Unix() + int64(life/time.Second)}
	if c.Key != "" {
		hash := sha256.Sum256([]byte(exchange.Token(r)))
		l.Key = hash[:]
	}
	word := l.Seal(d.Box)
	return &PortLink{"container.port", l.Container, l.Port, Origin(r) + LinkPath + word + "/", d.hostURL(r, l, word),
		l.ExpiresAt}, nil
}

// Origin returns this server's origin as the request states it, unverified.
func Origin(r *http.Request) string { return exchange.Origin(r) }

// LinkRoute returns the route of /preview/{link}/… for clients with a link.
func (d *Door) LinkRoute() exchange.Route {
	rt := exchange.On(LinkPath+"{link}/{path...}", nil, exchange.NoCORS)
	rt.Identity = d.linkVisitor
	return rt
}

// linkVisitor identifies the caller of a request with a link.
func (d *Door) linkVisitor(_ *exchange.Exchange, r *http.Request) (v exchange.Visit, err error) {
	l, err := Open(d.Box, r.PathValue("link"), d.Now())
	var key berth.KeyID
	if err == nil {
		key, err = d.checkLink(r, l)
	}
	if err != nil {
		return v, &berth.Error{Code: berth.CodeUnauthorized, Wire: "invalid_link", Err: err,
			Message: "This link is invalid or has expired. Create a new one with POST /v1/containers/{container_id}/ports/{port}."}
	}
	handle := func(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
		prefix, rest := cutPath(r, 2) // preview, the link
		return d.show(x, r, c, Target{Container: l.Container, Port: l.Port, Prefix: prefix, Path: rest,
			Link: true, Keyed: exchange.Token(r) != ""})
	}
	return exchange.Visit{Caller: berth.Caller{Project: l.Project, Key: key}, Handle: handle,
		Traits: exchange.ThroughContainer}, nil
}

// checkLink returns the key of a link. It returns an error unless that and the project are still valid.
func (d *Door) checkLink(r *http.Request, l Link) (berth.KeyID, error) {
	if err := d.Exchange.CheckProject(r.Context(), l.Project); err != nil {
		return "", err
	}
	if len(l.Key) == sha256.Size {
		key, err := d.Exchange.Keys.KeyByHash(r.Context(), [sha256.Size]byte(l.Key))
		switch {
		case err != nil:
			return "", err
		case key.Project != l.Project || key.Expired(d.Now().Unix()) || key.Lost():
			return "", berth.ErrNotFound
		}
		return key.ID, nil
	}
	open, err := d.Exchange.NeedsNoKey(r.Context())
	if err == nil && !open {
		err = errors.New("the link was created before the server had keys")
	}
	if err != nil {
		return "", err
	}
	return "", exchange.CheckPeer(r)
}
