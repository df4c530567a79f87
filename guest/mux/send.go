package mux

import (
	"cmp"
	"io"
	"net"
	"os"
	"sync"
)

// Write implements net.Conn.
func (st *Stream) Write(p []byte) (n int, err error) {
	st.sending.Lock()
	defer st.sending.Unlock()
	for n < len(p) {
		m, err := st.credit(1, min(len(p)-n, slotSize))
		if err != nil {
			return n, err
		}
		if err := st.session.data(st, p[n:n+m]); err != nil {
			return n, cmp.Or(st.reason(), err)
		}
		n += m
	}
	return n, nil
}

// ReadFrom implements io.ReaderFrom, for files: it sends what it reads in large pieces, and
// does not send a piece before it is full or at its end.
func (st *Stream) ReadFrom(r io.Reader) (int64, error) {
	return st.SendFrom(func(piece []byte) (n int, err error) {
		for n < len(piece) && err == nil {
			var m int
			m, err = r.Read(piece[n:])
			n += m
		}
		return n, err
	})
}

// SendFrom sends the pieces that fill returns, until it returns an error; io.EOF is the end.
// Each piece has room for at least minPiece bytes. It may be shared memory, which the other
// end can read and change at any time.
func (st *Stream) SendFrom(fill func(piece []byte) (int, error)) (sent int64, err error) {
	st.sending.Lock()
	defer st.sending.Unlock()
	for err == nil {
		var n int
		n, err = st.sendPiece(fill)
		sent += int64(n)
	}
	if err == io.EOF {
		err = nil
	}
	return sent, err
}

// minPiece is less than what the other end allows when it has read everything.
const minPiece = firstWindow / 4

var pieces = sync.Pool{New: func() any { b := make([]byte, maxFrame); return &b }}

// sendPiece sends one piece.
func (st *Stream) sendPiece(fill func([]byte) (int, error)) (int, error) {
	may, err := st.credit(minPiece, slotSize)
	if err != nil {
		return 0, err
	}
	var slot slot
	piece := []byte(nil)
	if a := st.session.share.arena.Load(); a != nil {
		slot, piece = a.assign(may)
	}
	if piece == nil {
		buf := pieces.Get().(*[]byte)
		defer pieces.Put(buf)
		piece = (*buf)[:min(may, len(*buf))]
	}
	n, ended := fill(piece)
	st.refund(may - n)
	switch {
	case slot.arena != nil:
		err = st.session.sendShared(st, slot, n)
	case n > 0:
		err = st.session.data(st, piece[:n])
	}
	if err != nil {
		return 0, cmp.Or(st.reason(), err)
	}
	return n, ended
}

// credit takes up to n bytes from the window towards the other end. It waits until there are
// enough.
func (st *Stream) credit(enough, n int) (int, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for {
		switch {
		case st.sentFIN || st.closed:
			return 0, net.ErrClosed
		case st.err != nil:
			return 0, st.err
		case passed(st.deadline.write):
			return 0, os.ErrDeadlineExceeded
		case st.window >= enough:
			n = min(n, st.window)
			st.window -= n
			return n, nil
		}
		st.wait(&st.writable, st.deadline.write)
	}
}

// refund returns unused bytes to the window.
func (st *Stream) refund(n int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.window += n
}
