package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Channels of the API server's protocol for commands: the first byte of each message.
const (
	stdin  = 0
	stdout = 1
	stderr = 2
	result = 3 // a status object, when the command has ended
)

// protocol is the version of that protocol. Each API server since 1.4 speaks it.
const protocol = "v4.channel.k8s.io"

// maxComplaint bounds the recorded part of a command's standard error, in bytes.
const maxComplaint = 1 << 10

// maxMessage is the size of the largest message that a conn sends, in bytes.
const maxMessage = 32 << 10

// exec starts a command in a Pod's container. Its standard input and output are the connection.
func (c *client) exec(ctx context.Context, name string, command ...string) (*conn, error) {
	to := c.server.JoinPath(c.podPath(name), "exec")
	to.RawQuery = url.Values{"container": {containerName}, "command": command, "stdin": {"true"}, "stdout": {"true"},
		"stderr": {"true"}}.Encode()
	header := http.Header{"User-Agent": {"berth"}}
	if err := c.authorize(header); err != nil {
		return nil, err
	}
	ws, resp, err := websocket.Dial(ctx, to.String(), &websocket.DialOptions{HTTPClient: c.stream, HTTPHeader: header,
		Subprotocols: []string{protocol}})
	if err != nil {
		if resp != nil && resp.StatusCode >= 300 {
			return nil, refusal(resp, "EXEC", c.podPath(name))
		}
		return nil, fmt.Errorf("connect: %w", err)
	}
	ws.SetReadLimit(-1) // messages are read in pieces
	life, end := context.WithCancel(context.Background())
	return &conn{ws: ws, life: life, end: end, server: c.server.Host}, nil
}

// A conn is a connection over the standard streams of a command. An expired deadline ends it.
// One goroutine may read while another one writes.
type conn struct {
	ws     *websocket.Conn
	life   context.Context // until Close
	end    context.CancelFunc
	server string

	reading   sync.Mutex
	in        io.Reader // the rest of a message, or nil
	channel   byte
	complaint []byte
	ended     error // the command's end

	writing sync.Mutex
	out     []byte

	deadlines           sync.Mutex
	readUntil, writeEnd time.Time
}

// Read reads the command's standard output.
func (s *conn) Read(p []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	ctx, stop := s.until(func() time.Time { return s.readUntil })
	defer stop()
	for {
		for s.in == nil {
			if err := s.next(ctx); err != nil {
				return 0, s.failed(ctx, err)
			}
		}
		if s.channel != stdout {
			if err := s.other(); err != nil {
				return 0, s.failed(ctx, err)
			}
			continue
		}
		n, err := s.in.Read(p)
		if errors.Is(err, io.EOF) {
			s.in, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, s.failed(ctx, err)
		}
	}
}

// next reads the head of a message.
func (s *conn) next(ctx context.Context) error {
	if s.ended != nil {
		return s.ended
	}
	_, in, err := s.ws.Reader(ctx)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	var head [1]byte
	if _, err := io.ReadFull(in, head[:]); errors.Is(err, io.EOF) {
		return nil // an empty message
	} else if err != nil {
		return err
	}
	s.channel, s.in = head[0], in
	return nil
}

// other reads a message that is not output.
func (s *conn) other() error {
	text, err := io.ReadAll(io.LimitReader(s.in, maxComplaint))
	if err == nil {
		_, err = io.Copy(io.Discard, s.in)
	}
	if err != nil {
		return err
	}
	s.in = nil
	switch s.channel {
	case stderr:
		s.complaint = append(s.complaint, text[:min(len(text), maxComplaint-len(s.complaint))]...)
	case result:
		var st status
		if err := json.Unmarshal(text, &st); err == nil && st.Status == "Success" {
			s.ended = io.EOF
			return nil
		}
		s.ended = fmt.Errorf("the command in the sandbox ended: %s", inWords(st.Message, wordsLimit))
	}
	return nil
}

// failed returns the error of a Read or Write.
func (s *conn) failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case s.life.Err() != nil:
		return net.ErrClosed
	case ctx.Err() != nil:
		return os.ErrDeadlineExceeded
	case websocket.CloseStatus(err) == websocket.StatusNormalClosure:
		return io.EOF
	}
	return err
}

// Write writes to the command's standard input.
func (s *conn) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	ctx, stop := s.until(func() time.Time { return s.writeEnd })
	defer stop()
	done := 0
	for done < len(p) {
		part := p[done:min(len(p), done+maxMessage)]
		s.out = append(append(s.out[:0], stdin), part...)
		if err := s.ws.Write(ctx, websocket.MessageBinary, s.out); err != nil {
			return done, s.failed(ctx, err)
		}
		done += len(part)
	}
	return done, nil
}

// until returns the context of a call with the deadline that was set before it.
func (s *conn) until(deadline func() time.Time) (context.Context, context.CancelFunc) {
	s.deadlines.Lock()
	defer s.deadlines.Unlock()
	if t := deadline(); !t.IsZero() {
		return context.WithDeadline(s.life, t)
	}
	return s.life, func() {}
}

// Close ends the connection, and with it the command.
func (s *conn) Close() error {
	s.end()
	if err := s.ws.CloseNow(); err != nil {
		return fmt.Errorf("close connection: %w", err)
	}
	return nil
}

// SetDeadline implements net.Conn. It applies to later calls.
func (s *conn) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (s *conn) SetReadDeadline(t time.Time) error {
	s.deadlines.Lock()
	defer s.deadlines.Unlock()
	s.readUntil = t
	return nil
}

// SetWriteDeadline implements net.Conn.
func (s *conn) SetWriteDeadline(t time.Time) error {
	s.deadlines.Lock()
	defer s.deadlines.Unlock()
	s.writeEnd = t
	return nil
}

// LocalAddr implements net.Conn.
func (s *conn) LocalAddr() net.Addr { return address("berth") }

// RemoteAddr implements net.Conn.
func (s *conn) RemoteAddr() net.Addr { return address(s.server) }

type address string

func (address) Network() string  { return "websocket" }
func (a address) String() string { return string(a) }

// greeting is the first output of a relay, after it has connected.
const greeting = "ok\n"

// greeted returns when the relay has connected, or has reported why it cannot.
func (s *conn) greeted() error {
	said := make([]byte, len(greeting))
	_, err := io.ReadFull(s, said)
	if err == nil && string(said) == greeting {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("the relay sent %q", said)
	}
	if words := strings.TrimSpace(string(s.complaint)); words != "" {
		err = fmt.Errorf("the relay in the sandbox: %q: %w", inWords(words, wordsLimit), err)
	}
	return err
}
