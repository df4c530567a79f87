package ssh

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/guest"
)

// A conn is a connection whose client has signed in.
type conn struct {
	*entrant
	door   *Door
	sc     *ssh.ServerConn
	remote string
	ctx    context.Context
	http   *http.Client  // of the API, for the caller
	guest  *guest.Client // of the container
	start  time.Time

	mu        sync.Mutex
	reason    string // why it was closed
	channels  int
	listeners map[listenerKey]*remoteListener
	noMore    bool // the client opens no more sessions

	heard atomic.Int64 // number of messages from the client
}

// run serves a connection until it ends.
func (d *Door) run(sc *ssh.ServerConn, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request, e *entrant,
	remote string) {
	ctx, end := context.WithCancel(d.ctx)
	defer end()
	client, release := d.api.client(e.caller)
	defer release()
	c := &conn{entrant: e, door: d, sc: sc, remote: remote, ctx: ctx, http: client, start: d.opts.Clock.Now(),
		guest: guestOf(client, e.container), listeners: map[listenerKey]*remoteListener{}}
	d.mu.Lock()
	d.open[c] = struct{}{}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.open, c)
		d.mu.Unlock()
	}()
	stop := context.AfterFunc(d.ctx, func() { c.close("the server is stopping") })
	defer stop()
	c.record(audit.Entry{Action: audit.SSHConnected, Reason: e.method})
	var work sync.WaitGroup
	work.Go(func() { c.serveRequests(requests) })
	work.Go(func() { c.keepAlive(ctx) })
	for ch := range channels {
		c.heard.Add(1)
		c.open(ch, &work)
	}
	end()
	c.closeListeners()
	work.Wait()
	c.mu.Lock()
	reason := c.reason
	c.mu.Unlock()
	c.record(audit.Entry{Action: audit.SSHEnded, Reason: reason,
		Milliseconds: d.opts.Clock.Since(c.start).Milliseconds()})
}

// guestOf returns a client of a container's guest.
func guestOf(client *http.Client, id berth.ContainerID) *guest.Client {
	return guest.NewHTTPClient("http://berth/v1/containers/"+url.PathEscape(string(id))+"/guest", client)
}

// house returns a client of the guest that does not depend on the key of the connection, to end what it has started.
func (c *conn) house() (client *guest.Client, release func()) {
	h, release := c.door.api.client(berth.Caller{Project: c.caller.Project})
	return guestOf(h, c.container), release
}

// record records an action of the connection.
func (c *conn) record(e audit.Entry) {
	e.Project, e.Key, e.Person, e.Container = c.caller.Project, c.caller.Key, c.caller.Person, c.container
	e.Address, e.Name = c.remote, c.name
	if c.door.opts.Audit != nil {
		c.door.opts.Audit.Record(e)
	}
}

// close ends the connection.
func (c *conn) close(reason string) {
	c.mu.Lock()
	if c.reason == "" {
		c.reason = reason
	}
	c.mu.Unlock()
	c.sc.Close()
}

// keepAlive closes the connection if its client does not answer any more.
func (c *conn) keepAlive(ctx context.Context) {
	ticker := c.door.opts.Clock.NewTicker(c.door.opts.Limits.KeepAlive)
	defer ticker.Stop()
	var heard int64
	answered := make(chan struct{}, 1)
	missed, asked := 0, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-answered:
			missed, asked = 0, false
		case <-ticker.C:
			if now := c.heard.Load(); now != heard {
				heard, missed = now, 0
			}
			if missed++; missed > 3 {
				c.close("the client does not answer")
				return
			}
			if !asked {
				asked = true
				go func() {
					if _, _, err := c.sc.SendRequest("keepalive@openssh.com", true, nil); err == nil {
						answered <- struct{}{}
					}
				}()
			}
		}
	}
}

// serveRequests serves the requests that concern no channel.
func (c *conn) serveRequests(requests <-chan *ssh.Request) {
	for r := range requests {
		c.heard.Add(1)
		ok, answer := false, []byte(nil)
		switch r.Type {
		case "tcpip-forward":
			ok, answer = c.listen(r.Payload)
		case "cancel-tcpip-forward":
			ok = c.cancel(r.Payload)
		case "keepalive@openssh.com":
			ok = true
		case "no-more-sessions@openssh.com":
			c.mu.Lock()
			c.noMore, ok = true, true
			c.mu.Unlock()
		}
		if r.WantReply {
			_ = r.Reply(ok, answer)
		}
	}
}

// open serves a channel that the client opens.
func (c *conn) open(ch ssh.NewChannel, work *sync.WaitGroup) {
	var serve func(ssh.NewChannel)
	switch ch.ChannelType() {
	case "session":
		serve = c.session
	case "direct-tcpip":
		serve = c.forward
	default: // such as x11 and auth-agent
		_ = ch.Reject(ssh.UnknownChannelType, "channels of this type are not served")
		return
	}
	c.mu.Lock()
	full := c.channels >= c.door.opts.Limits.Channels
	refused := c.noMore && ch.ChannelType() == "session"
	if !full && !refused {
		c.channels++
	}
	c.mu.Unlock()
	switch {
	case refused:
		_ = ch.Reject(ssh.Prohibited, "the client has said that it opens no more sessions")
		return
	case full:
		_ = ch.Reject(ssh.ResourceShortage, "the connection has too many channels")
		return
	}
	work.Go(func() {
		defer func() {
			c.mu.Lock()
			c.channels--
			c.mu.Unlock()
		}()
		serve(ch)
	})
}
