package jupyter

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The channels of a kernel, by the number of their sockets.
const (
	shellChannel = iota + 1
	iopubChannel
	stdinChannel
	controlChannel
	heartbeatChannel
)

// An Address is where a kernel listens: Unix sockets in a directory of its own, or ports of
// the loopback interface.
type Address struct {
	dir   string
	key   string
	ports []int // by channel, from 0; nil means Unix sockets
}

// NewAddress returns the address of a kernel that will be started, in a directory that
// exists and that only the kernel's user may enter. Kernels that may not know Unix sockets
// get ports: other processes can connect to them, but do not have the key.
func NewAddress(dir string, spec Spec) (Address, error) {
	a := Address{dir: dir, key: randomID()}
	switch strings.ToLower(spec.Language) {
	case "python", "r", "bash":
		return a, nil
	}
	for range heartbeatChannel {
		l, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			return a, fmt.Errorf("find port: %w", err)
		}
		defer l.Close() // after all are found, so that they differ
		a.ports = append(a.ports, l.Addr().(*net.TCPAddr).Port)
	}
	return a, nil
}

const loopback = "127.0.0.1"

// of returns the network and the address of a channel.
func (a Address) of(channel int) (network, address string) {
	if a.ports == nil {
		return "unix", a.base() + "-" + strconv.Itoa(channel)
	}
	return "tcp", net.JoinHostPort(loopback, strconv.Itoa(a.ports[channel-1]))
}

// ConnectionFile returns the name and content of the file that makes a kernel listen at
// the address.
func (a Address) ConnectionFile() (name string, content []byte) {
	fields := map[string]any{"transport": "ipc", "ip": a.base(), "key": a.key, "signature_scheme": "hmac-sha256"}
	if a.ports != nil {
		fields["transport"], fields["ip"] = "tcp", loopback
	}
	// in the order of the channels
	for i, name := range []string{"shell_port", "iopub_port", "stdin_port", "control_port", "hb_port"} {
		fields[name] = i + 1
		if a.ports != nil {
			fields[name] = a.ports[i]
		}
	}
	content, _ = json.Marshal(fields) // strings and numbers always marshal
	return filepath.Join(a.dir, "connection.json"), content
}

func (a Address) base() string { return filepath.Join(a.dir, "k") }

// A Client is connected to a kernel. Execute and Interrupt may be called concurrently.
type Client struct {
	key, session string
	shell        *socket
	control      *socket
	iopub        *socket

	replies  chan Message // of the shell channel
	messages chan Message // of the iopub channel
	closed   chan struct{}
	close    sync.Once
}

// dialPause is the interval of attempts to reach a kernel that starts.
const dialPause = 10 * time.Millisecond

// Connect waits until a kernel that was started listens and answers, or ctx ends.
func Connect(ctx context.Context, a Address) (*Client, error) {
	c := &Client{key: a.key, session: randomID(), replies: make(chan Message, 16), messages: make(chan Message, 64),
		closed: make(chan struct{})}
	for _, s := range []struct {
		to      **socket
		channel int
		kind    string
	}{{&c.iopub, iopubChannel, "SUB"}, {&c.shell, shellChannel, "DEALER"}, {&c.control, controlChannel, "DEALER"}} {
		var err error
		if *s.to, err = dial(ctx, a, s.channel, s.kind); err != nil {
			c.Close()
			return nil, err
		}
	}
	if err := c.iopub.subscribe(); err != nil {
		c.Close()
		return nil, err
	}
	go c.read(c.shell, c.replies)
	go c.read(c.iopub, c.messages)
	go c.read(c.control, nil)
	if err := c.greet(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func dial(ctx context.Context, a Address, channel int, kind string) (*socket, error) {
	network, address := a.of(channel)
	for {
		conn, err := net.Dial(network, address)
		if err == nil {
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			s, err := newSocket(conn, kind)
			stop()
			if err != nil {
				conn.Close()
			}
			return s, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(dialPause):
		}
	}
}

// greet waits until a request is answered on both channels. A kernel publishes what it does
// before it has seen the subscription, so one request may not be enough.
func (c *Client) greet(ctx context.Context) error {
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	id := randomID()
	if err := c.request(c.shell, id, "kernel_info_request", struct{}{}); err != nil {
		return err
	}
	replied, published := false, false
	for !replied || !published {
		select {
		case <-c.replies:
			replied = true
		case <-c.messages:
			published = true
		case <-again.C:
			if !replied {
				continue
			}
			if err := c.request(c.shell, randomID(), "kernel_info_request", struct{}{}); err != nil {
				return err
			}
		case <-c.closed:
			return net.ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (c *Client) request(s *socket, id, kind string, content any) error {
	frames, err := encode(c.key, c.session, id, kind, content)
	if err != nil {
		return err
	}
	return s.send(frames)
}

// read passes the messages of a socket on until it is closed. A nil channel drops them.
func (c *Client) read(s *socket, to chan<- Message) {
	defer c.Close()
	for {
		frames, start, err := s.receive()
		if err != nil {
			return
		}
		m, err := decode(c.key, frames, start)
		if err != nil || to == nil {
			continue
		}
		select {
		case to <- m:
		case <-c.closed:
			return
		}
	}
}

// A Reply is how code ended.
type Reply struct {
	Status string // ok, error or aborted
	Exits  bool   // the kernel ends now, because the code called exit()
	Count  int    // executions of the kernel so far; 0 if it does not report them
}

// Execute runs code and passes what it publishes to each, until the code has ended. each
// must not block for long. Execute returns an error if the kernel is gone or ctx ends; the code
// continues then.
func (c *Client) Execute(ctx context.Context, code string, each func(Message)) (Reply, error) {
	return c.execute(ctx, code, false, each)
}

// ExecuteSilently runs code that publishes nothing and is not counted.
func (c *Client) ExecuteSilently(ctx context.Context, code string) (Reply, error) {
	return c.execute(ctx, code, true, func(Message) {})
}

func (c *Client) execute(ctx context.Context, code string, silent bool, each func(Message)) (Reply, error) {
	id := randomID()
	// An error must not abort what waits behind it. After a restart of the server that is another caller's code, behind
	// code that is interrupted.
	err := c.request(c.shell, id, "execute_request", map[string]any{"code": code, "silent": silent,
		"store_history":    !silent,
		"user_expressions": struct{}{}, "allow_stdin": false, "stop_on_error": false})
	if err != nil {
		return Reply{}, err
	}
	var reply Reply
	for idle := false; !idle || reply.Status == ""; {
		select {
		case m := <-c.replies:
			if m.Parent == id {
				reply = replyOf(m)
			}
		case m := <-c.messages:
			switch {
			case m.Type == "status":
				idle = idle || m.Parent == id && stateOf(m) == "idle"
			case m.Type == "stream" || m.Parent == id: // a thread may print with the parent of an earlier request
				each(m)
			}
		case <-c.closed:
			err = net.ErrClosed
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if reply.Exits {
			return reply, nil // it may end before it says that it is idle
		}
		if err != nil {
			return Reply{}, err
		}
	}
	return reply, nil
}

func replyOf(m Message) Reply {
	var content struct {
		Status  string
		Count   int `json:"execution_count"`
		Payload []struct {
			Source     string
			KeepKernel bool
		}
	}
	_ = json.Unmarshal(m.Content, &content) // "" is an error
	reply := Reply{Status: content.Status, Count: content.Count}
	if reply.Status != "ok" && reply.Status != "aborted" {
		reply.Status = "error"
	}
	for _, p := range content.Payload {
		reply.Exits = reply.Exits || p.Source == "ask_exit" && !p.KeepKernel
	}
	return reply
}

func stateOf(m Message) string {
	var status struct {
		State string `json:"execution_state"`
	}
	_ = json.Unmarshal(m.Content, &status) // "" is not idle
	return status.State
}

// Interrupt sends an interrupt_request, for kernels with the interrupt mode "message".
func (c *Client) Interrupt() error {
	return c.request(c.control, randomID(), "interrupt_request", struct{}{})
}

// Close ends the connection, but not the kernel.
func (c *Client) Close() {
	c.close.Do(func() {
		close(c.closed)
		for _, s := range []*socket{c.shell, c.control, c.iopub} {
			if s != nil {
				s.conn.Close()
			}
		}
	})
}

// WriteConnectionFile writes the connection file for a user. The kernel reads it once.
func (a Address) WriteConnectionFile(uid, gid int) (string, error) {
	name, content := a.ConnectionFile()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		return "", fmt.Errorf("write connection file: %w", err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(name, uid, gid); err != nil {
			return "", err
		}
	}
	return name, nil
}
