// Package sse writes and reads server-sent events, the text/event-stream format
// of the WHATWG HTML standard, section 9.2.
package sse

import (
	"bytes"
	"io"
)

// ContentType is the media type of a stream.
const ContentType = "text/event-stream; charset=utf-8"

// An Event is one event of a stream. The format cannot carry a carriage return:
// the line ends of Data become '\n' on the way.
type Event struct {
	Type string // "event:", "" is the default "message"; one line
	Data []byte // "data:", its lines joined by '\n'
}

// A Writer writes events. Each is one Write of the underlying writer, so that a
// flush after it never leaves half an event on the wire. It is not safe for
// concurrent use.
type Writer struct {
	out io.Writer
	buf []byte
}

// NewWriter returns a Writer to out.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// Event writes one event.
func (w *Writer) Event(ev Event) error {
	w.buf = w.buf[:0]
	if ev.Type != "" {
		w.field("event: ", []byte(ev.Type))
	}
	w.field("data: ", ev.Data)
	return w.flush()
}

// Comment writes a line that readers skip. It keeps a silent connection alive.
func (w *Writer) Comment(text string) error {
	w.buf = w.buf[:0]
	w.field(": ", []byte(text))
	return w.flush()
}

// field adds value under name, one line for each of its lines.
func (w *Writer) field(name string, value []byte) {
	for {
		n := bytes.IndexAny(value, "\r\n")
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
