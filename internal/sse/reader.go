package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
)

// MaxEvent is the default limit of one event in bytes.
const MaxEvent = 64 << 20

// ErrTooLong is returned for an event above the reader's limit.
var ErrTooLong = errors.New("server-sent event is too long")

// A Reader reads events. It is not safe for concurrent use.
type Reader struct {
	in     *bufio.Reader
	limit  int
	line   []byte
	begun  bool // a byte order mark, if any, has been skipped
	skipLF bool // the last line ended in '\r'; a following '\n' belongs to it
}

// BufferSize is the size of a Reader's buffer in bytes. NewReader uses a *bufio.Reader that
// has one of this size or larger as it is.
const BufferSize = 8 << 10

// NewReader returns a Reader of in. limit is the maximum size of all lines of one event
// in bytes; 0 means MaxEvent.
func NewReader(in io.Reader, limit int) *Reader {
	if limit == 0 {
		limit = MaxEvent
	}
	return &Reader{in: bufio.NewReaderSize(in, BufferSize), limit: limit}
}

// Next returns the next event as soon as the empty line that ends it has arrived. It
// skips comments and the fields "id" and "retry". The error is io.EOF at the end of the
// stream and io.ErrUnexpectedEOF within an event.
func (r *Reader) Next() (Event, error) {
	var ev Event
	var data []byte
	size, hasData := 0, false
	for {
		line, err := r.readLine(r.limit - size)
		if err == io.EOF && (hasData || ev.Type != "" || len(line) > 0) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return Event{}, err
		}
		if len(line) == 0 {
			if hasData {
				ev.Data = data[:len(data)-1]
				return ev, nil
			}
			ev, size = Event{}, 0 // without data it is not an event
			continue
		}
		size += len(line)
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "":
			size -= len(line) // a comment belongs to no event
		case "event":
			ev.Type = string(value)
		case "data":
			data = append(append(data, value...), '\n')
			hasData = true
		}
	}
}

// Events yields the events up to the end of the stream. An error other than io.EOF is
// yielded last.
func (r *Reader) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			ev, err := r.Next()
			if err == io.EOF {
				return
			}
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// Data yields the data of the events, as Events does.
func (r *Reader) Data() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for ev, err := range r.Events() {
			if !yield(ev.Data, err) {
				return
			}
		}
	}
}

// readLine returns one line of at most limit bytes without its end, which is "\n",
// "\r\n" or "\r". The line is valid until the next call. With an error, it returns the
// partial line.
func (r *Reader) readLine(limit int) ([]byte, error) {
	r.line = r.line[:0]
	for {
		if _, err := r.in.Peek(1); err != nil {
			return r.line, err
		}
		ready, _ := r.in.Peek(r.in.Buffered())
		if r.skipLF {
			r.skipLF = false
			if ready[0] == '\n' {
				r.in.Discard(1)
				continue
			}
		}
		n := lineEnd(ready)
		part := ready
		if n >= 0 {
			part = ready[:n]
		}
		if len(r.line)+len(part) > limit {
			return nil, ErrTooLong
		}
		r.line = append(r.line, part...)
		if n < 0 {
			r.in.Discard(len(ready))
			continue
		}
		r.skipLF = ready[n] == '\r'
		r.in.Discard(n + 1)
		if !r.begun {
			r.begun = true
			r.line = bytes.TrimPrefix(r.line, []byte("\ufeff"))
		}
		return r.line, nil
	}
}
