// Package ssh serves SSH: a user name is a container, and what a client may do with it is what its API key may do.
//
// A connection is an API key as password, a public key (package sshkeys), a certificate of an authority of the
// configuration, or a request to the API that was admitted before. Its commands, files and forwarded ports are requests
// to the API itself, for the caller of the connection: permissions, limits, logs, and the way to another server of a
// cluster are those of the API.
//
//	accept ─▶ handshake (handshakeTime) ─▶ channels, until the client leaves or its key ends
package ssh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/internal/nofile"
	"github.com/berth-run/berth/sshkeys"
)

// Pattern names connections of SSH in the table of permissions and in the scopes of keys, however they come.
const Pattern = "GET /v1/containers/{container}/ssh"

// Identity admits callers; *exchange.Server is one.
type Identity interface {
	Admit(ctx context.Context, token string, needed berth.Permission, pattern string) (berth.Caller, error)
	Readmit(ctx context.Context, c berth.Caller, needed berth.Permission, pattern string) (berth.Caller, error)
}

// Containers finds containers; *container.Service is one.
type Containers interface {
	Get(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error)
	List(ctx context.Context, p berth.ProjectID, name string, page berth.Page) ([]*berth.Container, bool, error)
}

// Recorder records actions; *audit.Log is one.
type Recorder interface{ Record(entries ...audit.Entry) }

// Limits bound clients. A zero limit is the default.
type Limits struct {
	Connections int           // of all clients; default 256
	PerAddress  int           // connections of one address; default 64
	Handshakes  int           // at a time, without those of the API; default 32
	Handshake   time.Duration // until a client has signed in; default 20 s
	Failures    int           // of an address in FailureTime; default 20
	FailureTime time.Duration // default 10 min
	Channels    int           // of a connection at a time; default 64
	Listeners   int           // remote forwardings of a connection; default 8
	KeepAlive   time.Duration // between questions to a silent client; it may miss two. Default 30 s
	KeyCheck    time.Duration // between checks of the keys of connections; default 3 s
}

func (l *Limits) fill() {
	for _, n := range []struct {
		at   *int
		kind int
	}{{&l.Connections, 256}, {&l.PerAddress, 64}, {&l.Handshakes, 32}, {&l.Failures, 20}, {&l.Channels, 64},
		{&l.Listeners, 8}} {
		if *n.at == 0 {
			*n.at = n.kind
		}
	}
	for _, d := range []struct {
		at   *time.Duration
		kind time.Duration
	}{{&l.Handshake, 20 * time.Second}, {&l.FailureTime, 10 * time.Minute}, {&l.KeepAlive, 30 * time.Second},
		{&l.KeyCheck, 3 * time.Second}} {
		if *d.at == 0 {
			*d.at = d.kind
		}
	}
}

// Options are what a Door needs.
type Options struct {
	HostKey     ssh.Signer
	Keys        *sshkeys.Service
	Authorities []Authority
	Containers  Containers
	Audit       Recorder
	Log         *slog.Logger
	Limits      Limits
	Clock       clock.Clock // default clock.System
}

// A Door serves SSH. It is safe for concurrent use.
type Door struct {
	opts     Options
	identity Identity
	needed   berth.Permission // for a connection
	api      *loop
	failures *failures

	ctx   context.Context // ends at Close
	end   context.CancelFunc
	shake chan struct{} // has an element for each handshake of the listener
	all   sync.WaitGroup

	mu    sync.Mutex
	open  map[*conn]struct{}
	count map[netip.Addr]int // connections of the listener
	total int
}

// New returns a door. It admits nobody before Connect.
func New(opts Options) *Door {
	opts.Limits.fill()
	if opts.Clock == nil {
		opts.Clock = clock.System
	}
	d := &Door{opts: opts, open: map[*conn]struct{}{}, count: map[netip.Addr]int{},
		shake:    make(chan struct{}, opts.Limits.Handshakes),
		failures: newFailures(opts.Clock, opts.Limits.Failures, opts.Limits.FailureTime)}
	d.ctx, d.end = context.WithCancel(context.Background())
	return d
}

// Connect gives the door the API that it serves: how callers are admitted, what they need, and the handler for a
// caller. It must be called once, before the first connection.
func (d *Door) Connect(identity Identity, needed berth.Permission, api func(berth.Caller) http.Handler) {
	d.identity, d.needed = identity, needed
	d.api = newLoop(api, d.opts.Log)
	d.all.Go(d.watch)
}

// Close ends all connections and waits for them.
func (d *Door) Close(ctx context.Context) error {
	d.end()
	d.mu.Lock()
	for c := range d.open {
		c.close("the server is stopping")
	}
	d.mu.Unlock()
	ended := make(chan struct{})
	go func() { d.all.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	if d.api == nil {
		return nil
	}
	return d.api.close()
}

// HostKey returns the public key of the host in the form of known_hosts, without names.
func (d *Door) HostKey() ssh.PublicKey { return d.opts.HostKey.PublicKey() }

// Serve serves the connections of a listener until it is closed.
func (d *Door) Serve(l net.Listener) error {
	for {
		raw, err := l.Accept()
		if err != nil {
			if d.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			if nofile.Exhausted(err) || errors.Is(err, unix.ECONNABORTED) {
				if clock.Sleep(d.ctx, d.opts.Clock, acceptPause) != nil {
					return nil
				}
				continue
			}
			return err
		}
		address := addressOf(raw.RemoteAddr())
		if reason := d.enter(address); reason != "" {
			raw.Close()
			if reason != reasonGuesses { // the failures themselves are recorded
				d.opts.Log.Debug("refuse SSH connection", "address", address, "reason", reason)
			}
			continue
		}
		d.all.Go(func() {
			defer d.leave(address)
			d.serve(raw, address)
		})
	}
}

// acceptPause is the time before the next try after a lack of file descriptors.
const acceptPause = 100 * time.Millisecond

const reasonGuesses = "too many failures"

// enter counts a connection of an address, or returns why it is refused.
func (d *Door) enter(a netip.Addr) (reason string) {
	if d.failures.tooMany(a) {
		return reasonGuesses
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.ctx.Err() != nil:
		return "the server is stopping"
	case d.total >= d.opts.Limits.Connections:
		return "too many connections"
	case d.count[a] >= d.opts.Limits.PerAddress:
		return "too many connections of the address"
	}
	d.total++
	d.count[a]++
	return ""
}

func (d *Door) leave(a netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total--
	if d.count[a]--; d.count[a] == 0 {
		delete(d.count, a)
	}
}

// serve serves a connection of the listener.
func (d *Door) serve(raw net.Conn, address netip.Addr) {
	defer raw.Close()
	select {
	case d.shake <- struct{}{}:
	default:
		return // the client tries again
	}
	release := sync.OnceFunc(func() { <-d.shake })
	defer release()
	at := &attempt{door: d, address: address, remote: raw.RemoteAddr().String()}
	sc, channels, requests, err := d.handshake(raw, at.config())
	if err != nil {
		at.failed()
		return
	}
	release()
	d.run(sc, channels, requests, at.entrant(sc.Permissions), at.remote)
}

// handshake performs a handshake within its time.
func (d *Door) handshake(raw net.Conn, config *ssh.ServerConfig) (*ssh.ServerConn, <-chan ssh.NewChannel,
	<-chan *ssh.Request, error) {
	stop := context.AfterFunc(d.ctx, func() { raw.Close() })
	defer stop()
	late := d.opts.Clock.AfterFunc(d.opts.Limits.Handshake, func() { raw.Close() })
	defer late.Stop()
	config.AddHostKey(d.opts.HostKey)
	sc, channels, requests, err := ssh.NewServerConn(raw, config)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("shake hands: %w", err)
	}
	return sc, channels, requests, nil
}

// Tunnel serves a connection that came as a request to the API, whose caller needs no further proof. It ends with ctx.
func (d *Door) Tunnel(ctx context.Context, raw net.Conn, c berth.Caller, id berth.ContainerID, remote string) {
	if d.ctx.Err() != nil {
		return
	}
	d.all.Add(1)
	defer d.all.Done()
	defer raw.Close()
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	sc, channels, requests, err := d.handshake(raw, &ssh.ServerConfig{ServerVersion: version, NoClientAuth: true})
	if err != nil {
		return
	}
	d.run(sc, channels, requests, &entrant{caller: c, container: id, method: "tunnel", valid: d.readmit(c)}, remote)
}

// version is the version that clients see. They do not need to know more.
const version = "SSH-2.0-Berth"

// watch ends the connections whose keys are not valid any more.
func (d *Door) watch() {
	ticker := d.opts.Clock.NewTicker(d.opts.Limits.KeyCheck)
	defer ticker.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-ticker.C:
		}
		d.mu.Lock()
		open := make([]*conn, 0, len(d.open))
		for c := range d.open {
			open = append(open, c)
		}
		d.mu.Unlock()
		known := map[string]error{} // by what proves the right, so that one key is read once
		for _, c := range open {
			err, checked := known[c.proof()]
			if !checked {
				err = c.valid(d.ctx)
				known[c.proof()] = err
			}
			if code := berth.ErrorCode(err); code == berth.CodeUnauthorized || code == berth.CodeForbidden {
				c.close("the key is not valid any more")
			} // other errors mean that the store cannot tell
		}
	}
}
