package ssh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/hashicorp/yamux"
	"golang.org/x/crypto/ssh"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/guest"
)

// listenRequest is tcpip-forward and its cancellation, RFC 4254, section 7.1.
type listenRequest struct {
	Host string
	Port uint32
}

// A listenerKey is how a client names what it has asked for.
type listenerKey struct {
	host string
	port uint32
}

// A remoteListener is a program in the container that listens on a port of its loopback, for the client.
type remoteListener struct {
	port uint32
	end  func()
	done chan struct{}
}

// listen makes the container listen for a client.
func (c *conn) listen(payload []byte) (ok bool, answer []byte) {
	var req listenRequest
	if ssh.Unmarshal(payload, &req) != nil || req.Port > 65535 || c.noPorts || c.container == "" {
		return false, nil
	}
	switch strings.ToLower(req.Host) {
	case "", "localhost", "127.0.0.1", "::1", "*", "0.0.0.0", "::": // a container has no other address
	default:
		return false, nil
	}
	if reason := c.mayListen(c.ctx); reason != "" {
		c.door.opts.Log.Debug("refuse remote forwarding", "container", c.container, "reason", reason)
		return false, nil
	}
	c.mu.Lock()
	full := len(c.listeners) >= c.door.opts.Limits.Listeners
	_, taken := c.listeners[listenerKey{req.Host, req.Port}]
	c.mu.Unlock()
	if full || taken && req.Port != 0 {
		return false, nil
	}
	l, err := c.startListener(req)
	if err != nil {
		return false, nil
	}
	c.mu.Lock()
	c.listeners[listenerKey{req.Host, l.port}] = l
	c.mu.Unlock()
	c.record(audit.Entry{Action: audit.SSHForwarded, Port: int(l.port), Reason: "remote"})
	if req.Port == 0 {
		answer = ssh.Marshal(struct{ Port uint32 }{l.port})
	}
	return true, answer
}

// cancel ends a listener.
func (c *conn) cancel(payload []byte) bool {
	var req listenRequest
	if ssh.Unmarshal(payload, &req) != nil {
		return false
	}
	key := listenerKey{req.Host, req.Port}
	c.mu.Lock()
	l := c.listeners[key]
	delete(c.listeners, key)
	c.mu.Unlock()
	if l == nil {
		return false
	}
	l.end()
	<-l.done
	return true
}

func (c *conn) closeListeners() {
	c.mu.Lock()
	all := c.listeners
	c.listeners = map[listenerKey]*remoteListener{}
	c.mu.Unlock()
	for _, l := range all {
		l.end()
		<-l.done
	}
}

// A processPipe is the standard streams of a process as a connection.
type processPipe struct {
	io.Reader
	process *guest.Process
	ctx     context.Context
	end     func()
}

func (p *processPipe) Write(data []byte) (n int, err error) {
	for len(data) > 0 {
		piece := data[:min(len(data), pieceSize)]
		if err := p.process.Write(p.ctx, piece); err != nil {
			return n, err
		}
		n, data = n+len(piece), data[len(piece):]
	}
	return n, nil
}

func (p *processPipe) Close() error {
	p.end()
	return nil
}

// startListener starts the program of a listener, which ends when its input does.
func (c *conn) startListener(req listenRequest) (*remoteListener, error) {
	ctx, end := context.WithCancel(context.WithoutCancel(c.ctx))
	p, err := c.guest.Start(ctx, guest.ProcessRequest{Cmd: guest.Program, In: true,
		Args: []string{"listen", strconv.Itoa(int(req.Port))}})
	if err != nil {
		end()
		return nil, err
	}
	out, in := io.Pipe()
	go func() {
		for ev, err := range p.Events() {
			if err != nil || ev.Ended {
				break
			}
			if _, err := in.Write(ev.Stdout); err != nil {
				break
			}
		}
		in.CloseWithError(io.EOF)
	}()
	l := &remoteListener{done: make(chan struct{})}
	l.end = func() {
		house, release := c.house()
		defer release()
		limit, cancel := c.door.opts.Clock.WithTimeout(context.Background(), killTime)
		defer cancel()
		_ = kill(limit, house, "KILL", p.PID) // an error means that it has ended
		end()
		out.Close()
	}
	lines := bufio.NewReader(out)
	stop := context.AfterFunc(c.ctx, func() { out.Close() })
	line, err := lines.ReadString('\n')
	stop()
	port, _ := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || port < 1 || port > 65535 {
		l.end()
		return nil, errors.New("the port is not free")
	}
	l.port = uint32(port)
	config := yamux.DefaultConfig()
	config.LogOutput, config.EnableKeepAlive = io.Discard, false
	mux, err := yamux.Server(&processPipe{lines, p, ctx, end}, config)
	if err != nil {
		l.end()
		return nil, fmt.Errorf("share the listener's connection: %w", err)
	}
	go func() {
		defer close(l.done)
		defer mux.Close()
		for {
			inner, err := mux.Accept()
			if err != nil {
				return
			}
			go c.deliver(ctx, inner, req.Host, l.port)
		}
	}()
	return l, nil
}

// deliver connects a connection in the container to the client.
func (c *conn) deliver(ctx context.Context, inner net.Conn, host string, port uint32) {
	defer inner.Close()
	c.mu.Lock()
	full := c.channels >= c.door.opts.Limits.Channels
	if !full {
		c.channels++
	}
	c.mu.Unlock()
	if full {
		return
	}
	defer func() {
		c.mu.Lock()
		c.channels--
		c.mu.Unlock()
	}()
	ch, requests, err := c.sc.OpenChannel("forwarded-tcpip",
		ssh.Marshal(forwardRequest{host, port, "127.0.0.1", 0}))
	if err != nil {
		return
	}
	defer ch.Close()
	go ssh.DiscardRequests(requests)
	carry(ctx, ch, inner)
}
