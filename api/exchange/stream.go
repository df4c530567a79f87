package exchange

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/jsonscan"
	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/journal"
)

// An EventWriter sends server-sent events to one client, and comments while there are no
// events. An error of its methods means that the client is gone or does not read.
type EventWriter struct {
	x         *Exchange
	every     time.Duration
	obfuscate bool
	stop      func() // ends the keep-alive comments and the context of Stream

	mu      sync.Mutex // one write at a time
	out     *PatientWriter
	batch   *batch
	events  *sse.Writer // to batch
	silence *time.Timer // nil without KeepAlive
	ping    sse.Event   // sent in place of keep-alive comments; see Ping
}

// Stream starts an answer that is an event stream. ctx ends with the request, or earlier if
// a keep-alive detects that the client is gone. The caller must call Close before the
// handler returns.
func (x *Exchange) Stream(r *http.Request, obfuscate bool) (out *EventWriter, ctx context.Context) {
	ctx, cancel := context.WithCancel(r.Context())
	out = x.Events(obfuscate)
	x.WriteHeader(http.StatusOK)
	if out.flush() != nil {
		cancel()
	}
	silent := out.KeepAlive(cancel)
	out.stop = func() {
		silent()
		cancel()
	}
	return out, ctx
}

// Close ends the keep-alive and the context of Stream.
func (o *EventWriter) Close() { o.stop() }

// Events returns a writer of events that sends the header with the first event. It sends no
// comments until KeepAlive is called.
func (x *Exchange) Events(obfuscate bool) *EventWriter {
	h := x.Header()
	h.Set("Content-Type", sse.ContentType)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // otherwise nginx buffers events
	h.Set("X-Content-Type-Options", "nosniff")
	return newEventWriter(x, obfuscate)
}

// Unset removes the headers of a stream that has not started, so that the handler can send
// another answer.
func (o *EventWriter) Unset() {
	o.x.Header().Del("Cache-Control")
	o.x.Header().Del("X-Accel-Buffering")
}

func newEventWriter(x *Exchange, obfuscate bool) *EventWriter {
	out, every := x.Patient(), x.server.Limits.KeepAlive
	batch := &batch{out: out}
	return &EventWriter{x: x, every: every, obfuscate: obfuscate, out: out, batch: batch, events: sse.NewWriter(batch)}
}

// KeepAlive sends comments until stop is called. The caller must call stop before the
// handler returns. KeepAlive calls gone if it detects that the client is gone.
func (o *EventWriter) KeepAlive(gone func()) (stop func()) {
	stopped := false
	comment := func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if !stopped && o.write(o.beat) != nil {
			gone()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.silence = time.AfterFunc(o.every, comment) // not a goroutine: there may be thousands of streams
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		stopped = true
		o.silence.Stop()
		o.silence = nil
	}
}

// Ping makes KeepAlive send an event in place of comments, as some APIs do. body must marshal.
func (o *EventWriter) Ping(name string, body any) {
	data, _ := json.Marshal(body)
	o.ping = sse.Event{Type: name, Data: data}
}

func (o *EventWriter) beat() error {
	if o.ping.Data != nil {
		return o.events.Event(o.ping)
	}
	return o.events.Comment("keep-alive")
}

// Obfuscates reports whether the writer hides the lengths of texts.
func (o *EventWriter) Obfuscates() bool { return o.obfuscate }

// Events sends events of the journal.
func (o *EventWriter) Events(events []journal.Event) error {
	return o.send(func() error {
		for _, ev := range events {
			data, tail := []byte(ev.Data), []byte(nil)
			if o.obfuscate {
				data, tail = Obfuscate(data)
			}
			if err := o.events.EventOf(string(ev.Type), data, tail); err != nil {
				return err
			}
		}
		return nil
	})
}

// JSON sends the JSON of each value as an event. An empty name means events without a type.
func (o *EventWriter) JSON(name string, values ...any) error {
	return o.send(func() error {
		for _, v := range values {
			data, err := json.Marshal(v)
			if err != nil {
				return err
			}
			if err := o.events.Event(sse.Event{Type: name, Data: data}); err != nil {
				return err
			}
		}
		return nil
	})
}

// A TypedEvent is an event of a stream that has events of several types.
type TypedEvent struct {
	Type string
	Body any
}

// Typed sends the JSON of each body as an event of its type.
func (o *EventWriter) Typed(events ...TypedEvent) error {
	return o.send(func() error {
		for _, ev := range events {
			data, err := json.Marshal(ev.Body)
			if err != nil {
				return err
			}
			if err := o.events.Event(sse.Event{Type: ev.Type, Data: data}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Raw sends an event that is JSON already.
func (o *EventWriter) Raw(name string, data []byte) error {
	return o.send(func() error { return o.events.Event(sse.Event{Type: name, Data: data}) })
}

// Done sends "[DONE]", which is the last event of some streams.
func (o *EventWriter) Done(name string) {
	_ = o.send(func() error { return o.events.Event(sse.Event{Type: name, Data: []byte("[DONE]")}) })
}

// Fail sends err as an error event, the last of the stream, and returns err. number is the
// event's sequence number.
func (o *EventWriter) Fail(number int64, err error) error {
	_, e := Describe(err, o.x.requestID)
	code := e.Type
	if e.Code != nil {
		code = *e.Code
	}
	ev := berth.ErrorEvent(&berth.EventError{Type: e.Type, Code: code, Message: e.Message, Param: e.Param})
	ev.SequenceNumber = number
	_ = o.JSON(string(berth.EventErrored), ev)
	return err
}

// send sends what write writes to o.events.
func (o *EventWriter) send(write func() error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.write(write)
}

// write is send for a caller that holds mu.
func (o *EventWriter) write(write func() error) error {
	err := write()
	if err := cmp.Or(err, o.batch.end()); err != nil {
		return err
	}
	if err := o.flush(); err != nil {
		return err
	}
	if o.silence != nil {
		o.silence.Reset(o.every)
	}
	return nil
}

func (o *EventWriter) flush() error {
	if err := o.out.control.Flush(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// A batch joins small writes to large ones, because each write to a connection is a system
// call. It has a buffer only between the first write and end. It is not safe for
// concurrent use.
type batch struct {
	out io.Writer
	buf *[]byte // from buffers, or nil
}

// batchBytes is the size of a batch's buffer.
const batchBytes = 16 << 10

var buffers = sync.Pool{New: func() any {
	b := make([]byte, 0, batchBytes)
	return &b
}}

func (b *batch) Write(p []byte) (int, error) {
	if b.buf == nil {
		b.buf = buffers.Get().(*[]byte)
	}
	if len(*b.buf)+len(p) > batchBytes {
		if err := b.drain(); err != nil {
			return 0, err
		}
		if len(p) > batchBytes {
			return b.out.Write(p)
		}
	}
	*b.buf = append(*b.buf, p...)
	return len(p), nil
}

func (b *batch) drain() error {
	if len(*b.buf) == 0 {
		return nil
	}
	_, err := b.out.Write(*b.buf)
	*b.buf = (*b.buf)[:0]
	return err
}

// end writes the rest and gives the buffer back.
func (b *batch) end() error {
	if b.buf == nil {
		return nil
	}
	err := b.drain()
	buffers.Put(b.buf)
	b.buf = nil
	return err
}

// Obfuscates reports whether the stream of a request hides the lengths of tokens, which is
// the default.
func Obfuscates(req *berth.ResponseRequest) bool {
	return req.StreamOptions == nil || req.StreamOptions.IncludeObfuscation == nil ||
		*req.StreamOptions.IncludeObfuscation
}

// Obfuscate adds an "obfuscation" field of random characters to an event with a text delta,
// so that the size of a packet does not reveal the length of a token. As at OpenAI, text
// and padding together are a multiple of 16 characters. It returns the event in two pieces.
// The journal does not contain the padding, so it differs each time an event is read.
func Obfuscate(data []byte) (event, tail []byte) {
	const block = 16
	if !bytes.Contains(data, []byte(`"delta":"`)) || !bytes.HasSuffix(data, []byte("}")) {
		return data, nil
	}
	start, end, ok := jsonscan.Field(data, "delta")
	if !ok || data[start] != '"' {
		return data, nil
	}
	length := utf8.RuneCount(data[start:end]) - len(`""`)
	// for a longer text, the exact padding does not matter
	if length < 4<<10 && bytes.IndexByte(data[start:end], '\\') >= 0 {
		var delta string
		if json.Unmarshal(data[start:end], &delta) != nil {
			return data, nil
		}
		length = utf8.RuneCountInString(delta)
	}
	padding := rand.Text()[:block-length%block]
	return data[:len(data)-1], []byte(`,"obfuscation":"` + padding + `"}`)
}
