// Package sse writes and reads server-sent events, the text/event-stream format
// of the WHATWG HTML standard, section 9.2.
package sse

import (
	"bytes"
	"io"
)

// ContentType is the media type of a stream.
const ContentType = "text/event-stream; charset=utf-8"

// An Event is one event of a stream. The format cannot carry a carriage return, so all
// line ends of Data arrive as '\n'.
type Event struct {
	Type string // "event:", "" is the default "message"; one line
	Data []byte // "data:", its lines joined by '\n'
}

// A Writer writes events. It writes a small event with one call of the underlying
// writer, and a large one without copying its data. It is not safe for concurrent use.
type Writer struct {
	out io.Writer
	buf []byte
}

// NewWriter returns a Writer to out.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// large is the size in bytes from which data is not copied.
const large = 16 << 10

// Event writes one event.
func (w *Writer) Event(ev Event) error { return w.EventOf(ev.Type, ev.Data) }

// EventOf writes one event whose data is the concatenation of the pieces.
func (w *Writer) EventOf(kind string, data ...[]byte) error {
	size := 0
	for _, piece := range data {
		if size += len(piece); lineEnd(piece) >= 0 {
			return w.lines(kind, bytes.Join(data, nil))
		}
	}
	w.buf = w.buf[:0]
	if kind != "" {
		w.field("event: ", []byte(kind))
	}
	w.buf = append(w.buf, "data: "...)
	if size < large {
		for _, piece := range data {
			w.buf = append(w.buf, piece...)
		}
		w.buf = append(w.buf, '\n')
		return w.flush()
	}
	if _, err := w.out.Write(w.buf); err != nil {
		return err
	}
	for _, piece := range data {
		if _, err := w.out.Write(piece); err != nil {
			return err
		}
	}
	_, err := w.out.Write([]byte("\n\n"))
	return err
}

// lines writes one event whose data has several lines.
func (w *Writer) lines(kind string, data []byte) error {
	w.buf = w.buf[:0]
	if kind != "" {
		w.field("event: ", []byte(kind))
	}
	w.field("data: ", data)
	return w.flush()
}

// lineEnd returns the index of the first "\n" or "\r", or -1. Two calls of IndexByte take a
// tenth of the time of IndexAny.
func lineEnd(text []byte) int {
	n := bytes.IndexByte(text, '\n')
	if n < 0 {
		return bytes.IndexByte(text, '\r')
	}
	if r := bytes.IndexByte(text[:n], '\r'); r >= 0 {
		return r
	}
	return n
}

// Comment writes a line that readers skip, for example to keep a connection alive.
func (w *Writer) Comment(text string) error {
	w.buf = w.buf[:0]
	w.field(": ", []byte(text))
	return w.flush()
}

// field appends value to the buffer, each of its lines as a line with the given name.
func (w *Writer) field(name string, value []byte) {
	for {
		n := lineEnd(value)
		line := value
		if n >= 0 {
			line = value[:n]
		}
		w.buf = append(append(append(w.buf, name...), line...), '\n')
		if n < 0 {
			return
		}
		if bytes.HasPrefix(value[n:], []byte("\r\n")) {
			n++
		}
		value = value[n+1:]
	}
}

func (w *Writer) flush() error {
	w.buf = append(w.buf, '\n')
	_, err := w.out.Write(w.buf)
	return err
}
