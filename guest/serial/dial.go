package serial

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// maxStale bounds what is left on a line of connections before.
const maxStale = 16 << 20

// Dial begins a connection on a line, whose other end Listen serves. It does not
// wait for the guest: what is written waits until it listens.
func Dial(line net.Conn) (*Conn, error) {
	// What a former server process left unfinished takes up to one frame; what is not needed
	// for that is skipped.
	out := make([]byte, headerSize+maxPayload, headerSize+maxPayload+headerSize+helloSize)
	var payload [helloSize]byte
	rand.Read(payload[:idSize])
	binary.BigEndian.PutUint64(payload[idSize:], uint64(time.Now().UnixNano()))
	if _, err := line.Write(appendFrame(out, hello, payload[:])); err != nil {
		return nil, fmt.Errorf("serial: %w", err)
	}
	return &Conn{Conn: line, in: newReader(line), id: payload[:idSize]}, nil
}

// awaitID skips what was sent before, up to and with the id.
func awaitID(r *bufio.Reader, id []byte) error {
	for skipped := 0; skipped < maxStale; {
		if _, err := r.Peek(len(id)); err != nil {
			return err
		}
		have, _ := r.Peek(r.Buffered())
		if i := bytes.Index(have, id); i >= 0 {
			_, err := r.Discard(i + len(id))
			return err
		}
		n, _ := r.Discard(len(have) - len(id) + 1)
		skipped += n
	}
	return errors.New("the guest does not take the connection")
}

// A Conn is the server's end of a connection. One goroutine may read while others
// write.
type Conn struct {
	net.Conn // the line

	in   *bufio.Reader
	id   []byte // until the guest has repeated it
	rest []byte // of the frame that is being read

	write sync.Mutex
	out   []byte
}

// Await returns when the guest has taken the connection. It may be called before the
// first Read.
func (c *Conn) Await(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	err := c.begin()
	if !stop() {
		err = errors.Join(context.Cause(ctx), err)
	}
	return err
}

func (c *Conn) begin() error {
	if c.id == nil {
		return nil
	}
	if err := awaitID(c.in, c.id); err != nil {
		return err
	}
	c.id = nil
	return nil
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.begin(); err != nil {
		return 0, err
	}
	for len(c.rest) == 0 {
		k, payload, err := readFrame(c.in)
		if err != nil {
			return 0, err
		}
		if k != data {
			return 0, io.EOF
		}
		c.rest = payload // its place is read over only after it has been taken
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.write.Lock()
	defer c.write.Unlock()
	for len(p) > 0 {
		part := p[:min(len(p), maxPayload)]
		c.out = appendFrame(c.out[:0], data, part)
		if _, err := c.Conn.Write(c.out); err != nil {
			return n, err
		}
		n, p = n+len(part), p[len(part):]
	}
	return n, nil
}
