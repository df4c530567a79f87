package mcp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Limits of the stored events of a session.
const (
	maxStreams = 32      // the newest; each request has one
	maxStored  = 1 << 20 // bytes of events
)

// events stores the last events of sessions, from which clients resume streams that broke.
type events struct {
	ended func(session string) // called when the SDK has closed a session

	mu       sync.Mutex
	sessions map[string]*history
}

// A history has the last events of a session.
type history struct {
	streams map[string]*stream
	order   []string // streams, the oldest first, without that of the session itself
	size    int
}

// A stream has the last events of a stream.
type stream struct {
	first int // index of the first stored event
	data  [][]byte
}

var _ sdk.EventStore = (*events)(nil)

// errNoStream is the error of a stream that is not stored, or not any more.
var errNoStream = errors.New("no such stream")

// Open implements sdk.EventStore.
func (e *events) Open(_ context.Context, session, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.sessions[session]
	if h == nil {
		h = &history{streams: map[string]*stream{}}
		e.sessions[session] = h
	}
	if h.streams[id] != nil {
		return nil
	}
	h.streams[id] = &stream{}
	if id == "" {
		return nil
	}
	h.order = append(h.order, id)
	if len(h.order) > maxStreams {
		h.drop()
	}
	return nil
}

// drop forgets the oldest stream.
func (h *history) drop() {
	for _, data := range h.streams[h.order[0]].data {
		h.size -= len(data)
	}
	delete(h.streams, h.order[0])
	h.order = slices.Delete(h.order, 0, 1)
}

// Append implements sdk.EventStore.
func (e *events) Append(_ context.Context, session, id string, data []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.sessions[session]
	if h == nil || h.streams[id] == nil {
		return nil // too old to be resumed
	}
	s := h.streams[id]
	s.data = append(s.data, data)
	h.size += len(data)
	for h.size > maxStored && len(h.order) > 1 && h.order[0] != id {
		h.drop()
	}
	for h.size > maxStored && len(s.data) > 1 {
		h.size -= len(s.data[0])
		s.data[0] = nil
		s.data = s.data[1:]
		s.first++
	}
	return nil
}

// After implements sdk.EventStore.
func (e *events) After(_ context.Context, session, id string, index int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		data, err := e.after(session, id, index)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, d := range data {
			if !yield(d, nil) {
				return
			}
		}
	}
}

func (e *events) after(session, id string, index int) ([][]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.sessions[session]
	if h == nil || h.streams[id] == nil {
		return nil, errNoStream
	}
	s := h.streams[id]
	at := index + 1 - s.first
	switch {
	case at < 0:
		return nil, fmt.Errorf("event %d of the stream: %w", index+1, sdk.ErrEventsPurged)
	case at >= len(s.data):
		return nil, nil
	}
	return slices.Clone(s.data[at:]), nil
}

// SessionClosed implements sdk.EventStore.
func (e *events) SessionClosed(_ context.Context, session string) error {
	e.mu.Lock()
	delete(e.sessions, session)
	e.mu.Unlock()
	e.ended(session)
	return nil
}
