package mux

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// A Stream is one connection of a session. Close ends both directions; data that arrives
// afterwards is answered with a reset.
type Stream struct {
	session *Session
	id      uint32
	slow    *time.Timer // while the guest has not accepted it; of session.mu

	sending sync.Mutex    // held during a Write
	gone    chan struct{} // closed when nothing more can be sent
	leave   func()

	mu       sync.Mutex
	readable sync.Cond
	writable sync.Cond
	err      error    // the reason of the end; reads return it after the queue
	queue    []*chunk // with unread data; the last may have room
	filling  bool     // the last chunk is being read into
	charged  int      // bytes of the queue's buffers
	unread   int      // bytes of data in the queue
	may      int      // bytes that the guest may send
	window   int      // bytes that may be sent to the guest
	gotFIN   bool     // nothing more is received
	sentFIN  bool     // nothing more is sent
	closed   bool     // no more reads
	deadline struct{ read, write time.Time }
}

func newStream(s *Session, id uint32) *Stream {
	st := &Stream{session: s, id: id, may: firstWindow, window: firstWindow, gone: make(chan struct{})}
	st.leave = sync.OnceFunc(func() { close(st.gone) })
	st.readable.L, st.writable.L = &st.mu, &st.mu
	return st
}

// Session returns the stream's session.
func (st *Stream) Session() *Session { return st.session }

// wait waits for c, at most until a deadline. The caller holds st.mu.
func (st *Stream) wait(c *sync.Cond, by time.Time) {
	if !by.IsZero() {
		timer := time.AfterFunc(time.Until(by), func() {
			st.mu.Lock() // the waiting goroutine has it locked
			defer st.mu.Unlock()
			c.Broadcast()
		})
		defer timer.Stop()
	}
	c.Wait()
}

func passed(by time.Time) bool { return !by.IsZero() && !time.Now().Before(by) }

// Read implements net.Conn.
func (st *Stream) Read(p []byte) (int, error) {
	st.mu.Lock()
	for {
		switch {
		case st.closed:
			st.mu.Unlock()
			return 0, net.ErrClosed
		case passed(st.deadline.read):
			st.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			st.mu.Unlock()
			return 0, nil
		case st.unread > 0:
			n, more := st.take(p), st.grant()
			st.mu.Unlock()
			st.session.acknowledge(st.id, more)
			return n, nil
		case st.gotFIN:
			st.mu.Unlock()
			return 0, io.EOF
		case st.err != nil:
			err := st.err
			st.mu.Unlock()
			return 0, err
		}
		st.wait(&st.readable, st.deadline.read)
	}
}

// take moves bytes from the queue to p. The caller holds st.mu.
func (st *Stream) take(p []byte) (n int) {
	for n < len(p) && st.unread > 0 {
		c := st.queue[0]
		m := copy(p[n:], c.buf[c.r:c.w])
		n, c.r, st.unread = n+m, c.r+m, st.unread-m
		if c.r < c.w {
			break
		}
		if len(st.queue) == 1 && st.filling {
			break // more data follows in this chunk
		}
		st.queue[0] = nil
		st.queue = st.queue[1:]
		st.release(c)
	}
	return n
}

// release returns a chunk to its pool. The caller holds st.mu.
func (st *Stream) release(c *chunk) {
	if c.arena != nil {
		st.session.share.giveBack(c)
		return
	}
	st.charged -= len(c.buf)
	st.session.held.add(-len(c.buf))
	c.free()
}

// grant returns the bytes by which the window may be opened now. The caller holds st.mu.
func (st *Stream) grant() int {
	if st.gotFIN || st.err != nil {
		return 0
	}
	full := fullWindow
	if st.session.share.arena.Load() != nil {
		full = wideWindow
	}
	if st.may+st.unread > full/2 || !st.session.held.ample() {
		full = firstWindow
	}
	more := full - st.may - st.unread
	if more < full/2 {
		return 0
	}
	st.may += more
	return more
}

// receiveShared adds a body that is in a slot to the queue.
func (st *Stream) receiveShared(c *chunk) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if c.w > st.may {
		st.session.share.giveBack(c)
		return fmt.Errorf("%w: more than a window allows", errWire)
	}
	st.may -= c.w
	if st.over() {
		st.session.share.giveBack(c)
		return nil
	}
	st.queue = append(st.queue, c)
	st.unread += c.w
	st.readable.Broadcast()
	return nil
}

// receive reads n bytes of the stream from the session's connection.
func (st *Stream) receive(n int) error {
	st.mu.Lock()
	if n > st.may {
		st.mu.Unlock()
		return fmt.Errorf("%w: more than a window allows", errWire)
	}
	st.may -= n
	st.mu.Unlock()
	for n > 0 {
		c := st.space(n)
		if c == nil {
			return st.session.discard(n)
		}
		m, err := io.ReadFull(st.session.in, c.buf[c.w:min(len(c.buf), c.w+n)])
		if dropped := st.filled(c, m); err != nil {
			return err
		} else if n -= m; dropped {
			return st.session.discard(n)
		}
	}
	return nil
}

// space returns the queue's last chunk, with room in it, or nil if the stream is no longer
// read. Until filled is called no other goroutine changes the free part of the chunk.
func (st *Stream) space(n int) *chunk {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.over() {
		return nil
	}
	if last := len(st.queue) - 1; last >= 0 && st.queue[last].w < len(st.queue[last].buf) {
		st.filling = true
		return st.queue[last]
	}
	c := newChunk(n)
	st.mu.Unlock()
	st.session.held.reserve(len(c.buf)) // may reset this very stream
	st.mu.Lock()
	st.charged += len(c.buf)
	if st.over() {
		st.release(c)
		return nil
	}
	st.queue = append(st.queue, c)
	st.filling = true
	return c
}

// over reports whether received data is to be dropped. The caller holds st.mu.
func (st *Stream) over() bool { return st.closed || st.gotFIN || st.err != nil }

// filled adds n bytes to the chunk that space returned. It reports whether the stream is over.
func (st *Stream) filled(c *chunk, n int) (over bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.filling = false
	if st.closed || st.err != nil {
		st.drop()
		return true
	}
	c.w += n
	st.unread += n
	st.readable.Broadcast()
	return false
}

// drop releases the queue, except for a chunk that is being read into. The caller holds
// st.mu.
func (st *Stream) drop() {
	if st.filling {
		return // filled releases it
	}
	for _, c := range st.queue {
		st.release(c)
	}
	st.queue, st.unread = nil, 0
}

// holds returns the bytes of the stream's buffers.
func (st *Stream) holds() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.charged
}

// fail ends the stream and drops its data.
func (st *Stream) fail(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.err == nil {
		st.err = err
	}
	st.gotFIN = false
	st.drop()
	st.unread = 0
	st.leave()
	st.wake()
}

// reason returns the reason of the stream's end, or nil.
func (st *Stream) reason() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.err == nil && st.closed {
		return net.ErrClosed
	}
	return st.err
}

// lost ends the stream with its session. Received data can still be read.
func (st *Stream) lost(cause error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.err == nil {
		// which is no error of the stream: an end of the connection is not io.EOF
		st.err = fmt.Errorf("%w: %s", ErrLost, cause.Error())
	}
	for i, c := range st.queue { // the memory belongs to the session
		if c.arena != nil {
			st.queue[i] = &chunk{buf: bytes.Clone(c.buf), r: c.r, w: c.w}
			st.session.share.giveBack(c)
		}
	}
	st.wake()
}

func (st *Stream) wake() {
	st.readable.Broadcast()
	st.writable.Broadcast()
}

// ended records the guest's FIN and reports whether the server's was sent as well.
func (st *Stream) ended() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.gotFIN = true
	st.wake()
	return st.sentFIN
}

// allow opens the window towards the guest by n bytes.
func (st *Stream) allow(n uint32) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if int64(st.window)+int64(n) > 1<<31 {
		return fmt.Errorf("%w: a window that is too large", errWire)
	}
	st.window += int(n)
	st.writable.Broadcast()
	return nil
}

// CloseWrite ends the direction to the guest. The other one can still be read.
func (st *Stream) CloseWrite() error {
	st.mu.Lock()
	if st.sentFIN || st.closed || st.err != nil {
		st.mu.Unlock()
		return nil
	}
	st.sentFIN = true
	both := st.gotFIN
	st.writable.Broadcast()
	st.mu.Unlock()
	if both {
		st.session.forget(st)
	}
	return st.session.owe(reply{kindWindow, flagFIN, st.id, 0})
}

// Close implements net.Conn.
func (st *Stream) Close() error { return st.close(flagFIN) }

// Reset closes the stream and sends the guest a reset.
func (st *Stream) Reset() error { return st.close(flagRST) }

func (st *Stream) close(flag uint16) error {
	st.mu.Lock()
	if st.closed {
		st.mu.Unlock()
		return nil
	}
	st.closed = true
	st.leave()
	over := st.err != nil || st.gotFIN && st.sentFIN && flag == flagFIN
	if st.sentFIN {
		flag &^= flagFIN
	}
	st.drop()
	st.wake()
	st.mu.Unlock()
	st.session.forget(st)
	if over {
		return nil
	}
	// A sender that waits for the window may continue: it gets a reset.
	return st.session.owe(reply{kindWindow, flag, st.id, firstWindow})
}

// LocalAddr implements net.Conn.
func (st *Stream) LocalAddr() net.Addr { return st.session.conn.LocalAddr() }

// RemoteAddr implements net.Conn.
func (st *Stream) RemoteAddr() net.Addr { return st.session.conn.RemoteAddr() }

// SetDeadline implements net.Conn.
func (st *Stream) SetDeadline(t time.Time) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.deadline.read, st.deadline.write = t, t
	st.wake()
	return nil
}

// SetReadDeadline implements net.Conn.
func (st *Stream) SetReadDeadline(t time.Time) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.deadline.read = t
	st.readable.Broadcast()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (st *Stream) SetWriteDeadline(t time.Time) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.deadline.write = t
	st.writable.Broadcast()
	return nil
}
