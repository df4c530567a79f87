// Package guest is the Berth server's end of the protocol between the server and the guest
// program in a sandbox. The guest's end is package guest/server.
//
// One connection to the guest's socket carries a session of package mux, and its
// streams carry HTTP: E2B's envd services (process, filesystem, /files), Berth's own
// (shell calls), and CONNECT for ports. Data from the other end is not
// trusted: a hostile command may have written it.
package guest

//go:generate go tool -modfile=../tools/go.mod buf generate proto --template proto/buf.gen.yaml

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/berth-run/berth/guest/guestpb/berth/guest/v1"
	"github.com/berth-run/berth/guest/guestpb/berth/guest/v1/guestv1connect"
	"github.com/berth-run/berth/guest/guestpb/filesystem/filesystemconnect"
	"github.com/berth-run/berth/guest/guestpb/process/processconnect"
	"github.com/berth-run/berth/guest/mux"
)

// maxMessage bounds one RPC message from a guest, in bytes.
const maxMessage = 8 << 20

// maxHead bounds the head of a guest's answer, in bytes.
const maxHead = 64 << 10

// maxStreams is the number of open streams above which DialPort refuses another.
const maxStreams = 1024

// idleTime is how long a stream waits for the next request. Its end is a frame, after which the
// sandbox is quiet.
const idleTime = 5 * time.Second

// baseURL is the URL of requests inside a session.
const baseURL = "http://guest"

// A Client is the server's connection to one guest. It connects at its first use
// and again after a loss. It is safe for concurrent use.
type Client struct {
	dial    func(context.Context) (net.Conn, error) // nil if the client goes through HTTP
	sleeper mux.Sleeper                             // nil unless the sandbox may be paused during a connection
	base    string
	http    *http.Client

	shell   guestv1connect.ShellClient
	guest   guestv1connect.GuestClient
	process processconnect.ProcessClient
	files   filesystemconnect.FilesystemClient

	dialing chan struct{} // holds one value while a call dials

	mu      sync.Mutex // not held while waiting for the guest
	session *mux.Session
	closed  bool
}

// NewClient returns a client that connects to the guest with dial, which a
// sandbox.Driver provides. It does not dial yet.
func NewClient(dial func(context.Context) (net.Conn, error)) *Client {
	c := &Client{dial: dial, base: baseURL, dialing: make(chan struct{}, 1)}
	c.http = &http.Client{Transport: transport{client: c, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			stream, err := c.open(ctx)
			if err != nil {
				return nil, err // not st: a nil *Stream in a net.Conn is not nil
			}
			return stream, nil
		},
		DisableCompression:     true,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        idleTime,
		MaxResponseHeaderBytes: maxHead,
	}}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	c.connect()
	return c
}

// NewSleepingClient is NewClient for a sandbox that may be paused during a connection.
func NewSleepingClient(dial func(context.Context) (net.Conn, error), sleeper mux.Sleeper) *Client {
	c := NewClient(dial)
	c.sleeper = sleeper
	return c
}

// NewHTTPClient returns a client for a guest whose services are served at a URL, as the
// API serves them to the command line. DialPort does not work with it.
func NewHTTPClient(base string, hc *http.Client) *Client {
	c := &Client{base: base, http: hc}
	c.connect()
	return c
}

func (c *Client) connect() {
	opts := []connect.ClientOption{connect.WithReadMaxBytes(maxMessage), connect.WithAcceptCompression("gzip", nil,
		nil), connect.WithInterceptors(terse{})}
	c.shell = guestv1connect.NewShellClient(c.http, c.base, opts...)
	c.guest = guestv1connect.NewGuestClient(c.http, c.base, opts...)
	c.process = processconnect.NewProcessClient(c.http, c.base, opts...)
	c.files = filesystemconnect.NewFilesystemClient(c.http, c.base, opts...)
}

// open opens a stream to the guest, in a new session if there is none. A guest can delay
// the callers that wait for it until their contexts end, but no others.
func (c *Client) open(ctx context.Context) (*mux.Stream, error) {
	session, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := session.Open(ctx)
	if err == nil {
		return stream, nil
	}
	if ctx.Err() != nil {
		return nil, err
	}
	session.Close()
	if session, err = c.connected(ctx); err != nil {
		return nil, err
	}
	return session.Open(ctx)
}

// connected returns the session. It opens one if there is none.
func (c *Client) connected(ctx context.Context) (*mux.Session, error) {
	if session, err := c.current(); session != nil || err != nil {
		return session, err
	}
	select {
	case c.dialing <- struct{}{}:
		defer func() { <-c.dialing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if session, err := c.current(); session != nil || err != nil {
		return session, err
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	session := mux.Client(conn, nil, c.sleeper)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		session.Close()
		return nil, net.ErrClosed
	}
	c.session = session
	return session, nil
}

// current returns the session, or nil.
func (c *Client) current() (*mux.Session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	if c.session != nil && c.session.Ended() {
		c.session = nil
	}
	return c.session, nil
}

// Disconnect ends the connection. The next use opens another.
func (c *Client) Disconnect() { _ = c.drop(false) }

// Close ends the connection. Commands in the sandbox go on.
func (c *Client) Close() error { return c.drop(true) }

func (c *Client) drop(closed bool) error {
	c.mu.Lock()
	session := c.session
	c.closed = c.closed || closed
	c.mu.Unlock()
	c.http.CloseIdleConnections()
	if session == nil {
		return nil
	}
	return session.Close()
}

// Ping returns when the guest has answered.
func (c *Client) Ping(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/health", nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the guest answered %s", resp.Status)
	}
	return nil
}

// Info is what a guest reports about itself.
type Info struct {
	Version   string
	StartedAt time.Time
	User      string // the default user of commands
	WorkDir   string // where commands start
}

// Info returns the guest's information about itself.
func (c *Client) Info(ctx context.Context) (Info, error) {
	resp, err := c.guest.Info(ctx, connect.NewRequest(&v1.InfoRequest{}))
	if err != nil {
		return Info{}, err
	}
	m := resp.Msg
	return Info{m.Version, time.UnixMilli(m.StartedAtMs), m.User, m.Workdir}, nil
}

// SetEnvironment gives commands variables, KEY=value, in addition to the sandbox's own. It
// must be called before the first command.
func (c *Client) SetEnvironment(ctx context.Context, env []string) error {
	_, err := c.guest.SetEnvironment(ctx, connect.NewRequest(&v1.SetEnvironmentRequest{Environment: env}))
	return err
}

// Transport returns a transport that sends HTTP requests to the guest, whatever their
// host. The API uses it to pass envd's own protocol through. The caller decides which
// paths may pass.
func (c *Client) Transport() http.RoundTripper { return c.http.Transport }

// ErrPortClosed is returned by DialPort if no process listens on the port.
var ErrPortClosed = errors.New("the sandbox is running but the port is not open")

// DialPort connects to a TCP port on the sandbox's loopback.
func (c *Client) DialPort(ctx context.Context, port int) (net.Conn, error) {
	if c.dial == nil {
		return nil, errors.ErrUnsupported
	}
	conn, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	if conn.Session().Streams() > maxStreams {
		conn.Close()
		return nil, errors.New("too many connections to the guest")
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	host := net.JoinHostPort("localhost", strconv.Itoa(port))
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", host, host); err != nil {
		conn.Close()
		return nil, err
	}
	head := &io.LimitedReader{R: conn, N: maxHead}
	in := bufio.NewReaderSize(head, 4<<10)
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	switch {
	case err != nil:
	case resp.StatusCode == http.StatusBadGateway:
		err = ErrPortClosed
	case resp.StatusCode != http.StatusOK:
		err = fmt.Errorf("the guest answered %s", resp.Status)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	head.N = math.MaxInt64
	return &tunnel{conn, in}, nil
}

// A tunnel is a stream to a port whose first bytes were already read into a buffer.
type tunnel struct {
	*mux.Stream
	in *bufio.Reader
}

func (t *tunnel) Read(p []byte) (int, error) { return t.in.Read(p) }
