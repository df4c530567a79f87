package serial

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A Line is one serial line. Read blocks while there is nothing to read. It returns 0 and
// no error when the other end has hung up; later reads return the data of the next one.
type Line interface {
	io.Reader
	io.Writer
}

// Listen returns a listener for connections over lines. A line has one connection at a
// time: a new one ends the one before. opened is called with the server's time at the
// start of each. The listener ends with the process.
func Listen(lines []Line, opened func(time.Time)) net.Listener {
	l := &listener{accepted: make(chan net.Conn), closed: make(chan struct{})}
	for _, line := range lines {
		go (&port{line: line, listener: l, opened: opened}).serve()
	}
	return l
}

type listener struct {
	accepted chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return "serial" }
func (address) String() string  { return "serial" }

// A port is the guest's end of a line.
type port struct {
	line     Line
	listener *listener
	opened   func(time.Time)

	mu      sync.Mutex // held while a frame is written
	current net.Conn   // the port's end of the pipe to the connection; nil without one
}

// serve passes received frames to their connection.
func (p *port) serve() {
	r := newReader(hangingUp{p.line})
	for {
		k, payload, err := readFrame(r)
		switch {
		case errors.Is(err, errFrame):
			p.drop() // an incomplete frame, or the padding before a hello
		case errors.Is(err, io.EOF): // hung up, perhaps in the middle of a frame
			p.drop()
			_, _ = r.Discard(r.Buffered())
		case err != nil:
			p.drop()
			return
		case k == hello && len(payload) == helloSize:
			p.begin(payload)
		case k == data && p.current != nil:
			if _, err := p.current.Write(payload); err != nil {
				p.drop()
			}
		default:
			p.drop()
		}
	}
}

// hangingUp turns a hang-up into io.EOF.
type hangingUp struct{ Line }

func (h hangingUp) Read(b []byte) (int, error) {
	n, err := h.Line.Read(b)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// begin starts a new connection.
func (p *port) begin(payload []byte) {
	p.drop()
	if p.opened != nil {
		p.opened(time.Unix(0, int64(binary.BigEndian.Uint64(payload[idSize:]))))
	}
	ours, theirs := net.Pipe()
	p.mu.Lock()
	p.current = ours
	_, err := p.line.Write(payload[:idSize])
	p.mu.Unlock()
	if err != nil {
		p.drop()
		return
	}
	go p.send(ours)
	select {
	case p.listener.accepted <- theirs:
	case <-p.listener.closed:
		p.drop()
	}
}

// drop ends the current connection, if any.
func (p *port) drop() {
	if c := p.current; c != nil {
		c.Close() // before the lock: a writer may hold it until the next server process reads
		p.mu.Lock()
		p.current = nil
		p.mu.Unlock()
	}
}

// send copies the data of a connection to the line while the connection is the current
// one.
func (p *port) send(from net.Conn) {
	buf, frame := make([]byte, maxPayload), []byte(nil)
	for {
		n, err := from.Read(buf)
		k := data
		if err != nil {
			k, n = end, 0
		}
		frame = appendFrame(frame[:0], k, buf[:n])
		p.mu.Lock()
		if p.current != from {
			p.mu.Unlock()
			return
		}
		_, werr := p.line.Write(frame)
		p.mu.Unlock()
		if err != nil || werr != nil {
			from.Close()
			return
		}
	}
}
