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

// maxStale bounds the data of earlier connections on a line, in bytes.
const maxStale = 16 << 20

// Dial starts a connection on a line whose other end Listen serves. It does not wait for
// the guest: written data waits until the guest listens.
func Dial(line net.Conn) (*Conn, error) {
	// Zeros complete a frame that an earlier server process left unfinished; the guest skips
	// the rest of them.
	out := make([]byte, headerSize+maxPayload, headerSize+maxPayload+headerSize+helloSize)
	var payload [helloSize]byte
	rand.Read(payload[:idSize])
	binary.BigEndian.PutUint64(payload[idSize:], uint64(time.Now().UnixNano()))
	if _, err := line.Write(appendFrame(out, hello, payload[:])); err != nil {
		return nil, fmt.Errorf("serial: %w", err)
	}
	return &Conn{Conn: line, in: newReader(line), id: payload[:idSize]}, nil
}

// awaitID skips earlier data, up to and including the id.
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
	return errors.New("the guest does not accept the connection")
}

// A Conn is the server's end of a connection. One goroutine may read while others
// write.
type Conn struct {
	net.Conn // the line

	in   *bufio.Reader
	id   []byte // until the guest has repeated it
	rest []byte // unread payload of the present frame

	write sync.Mutex
	out   []byte
}

// Await returns when the guest has accepted the connection. It may be called before the
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
		c.rest = payload // valid until the next readFrame
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
