package mux

import (
	"sync"
	"sync/atomic"
	"time"
)

// Bounds on received data that was not read yet, in bytes of its buffers.
const (
	// MaxHeld is what one session may hold.
	MaxHeld = 64 << 20
	// MaxProcess is what all sessions of the process may hold together, beside fairHeld
	// of each.
	MaxProcess = 512 << 20

	fairHeld = 2 << 20
	patience = 300 * time.Millisecond // time for readers to make room
	clearing = 4 << 20                // bytes freed if they do not
)

const (
	smallChunk = 4 << 10
	largeChunk = 32 << 10
)

// A Pool limits the received data of several sessions together.
type Pool struct {
	Max  int64
	held atomic.Int64
}

var process = Pool{Max: MaxProcess}

// Held returns the number of held bytes.
func (p *Pool) Held() int64 { return p.held.Load() }

// An account counts the data that one session holds.
type account struct {
	session *Session
	pool    *Pool
	freed   chan struct{} // signalled after a release

	mu    sync.Mutex
	held  int64
	ended bool
}

func (a *account) add(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended { // the rest is no longer counted
		return
	}
	a.held += int64(n)
	a.pool.held.Add(int64(n))
	if n < 0 {
		select {
		case a.freed <- struct{}{}:
		default:
		}
	}
}

// end releases everything that is held.
func (a *account) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.pool.held.Add(-a.held)
	a.held = 0
}

// over reports whether n more bytes exceed a limit.
func (a *account) over(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := a.held + int64(n)
	return held > MaxHeld || held > fairHeld && a.pool.held.Load()+int64(n) > a.pool.Max
}

// ample reports whether streams may have large windows.
func (a *account) ample() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held < MaxHeld/4 && a.pool.held.Load() < a.pool.Max/2
}

// reserve waits until a chunk of n bytes may be held. If readers do not make room in
// time, it resets the streams that hold the most.
func (a *account) reserve(n int) {
	if a.over(n) {
		late := time.NewTimer(patience)
		defer late.Stop()
		tick := time.NewTicker(patience / 20) // other sessions release data without a signal
		defer tick.Stop()
		for a.over(n) {
			select {
			case <-a.freed:
			case <-tick.C:
			case <-late.C:
				for a.over(n+clearing) && a.session.resetFullest() {
				}
				a.add(n)
				return
			case <-a.session.done:
				return
			}
		}
	}
	a.add(n)
}

// resetFullest resets the stream that holds the most, if one holds anything; of several that hold
// as much, the oldest.
func (s *Session) resetFullest() bool {
	s.mu.Lock()
	var fullest *Stream
	most := 0
	for _, st := range s.streams {
		if n := st.holds(); n > most || n == most && fullest != nil && st.id < fullest.id {
			fullest, most = st, n
		}
	}
	s.mu.Unlock()
	if fullest == nil {
		return false
	}
	s.forget(fullest)
	fullest.fail(errFull)
	s.answer(reply{kindWindow, flagRST, fullest.id, 0})
	return true
}

var chunks = map[int]*sync.Pool{
	smallChunk: {New: func() any { return &chunk{buf: make([]byte, smallChunk)} }},
	largeChunk: {New: func() any { return &chunk{buf: make([]byte, largeChunk)} }},
}

// A chunk is a buffer of received data; buf[r:w] was not read yet.
type chunk struct {
	buf  []byte
	r, w int

	arena *arena // has the slot buf; nil if the buffer is the stream's own
	units uint32
}

func newChunk(want int) *chunk {
	size := largeChunk
	if want <= smallChunk {
		size = smallChunk
	}
	return chunks[size].Get().(*chunk)
}

func (c *chunk) free() {
	c.r, c.w = 0, 0
	if pool := chunks[len(c.buf)]; pool != nil {
		pool.Put(c)
	}
}
