package exchange

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/jsonscan"
	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/store"
)

// An EventWriter sends events to one client, and a comment after each silence. An error
// of its methods means that the client has gone or has stopped reading.
type EventWriter struct {
	x         *Exchange
	every     time.Duration
	obfuscate bool
	stop      func() // ends the keep-alive comments and the context of Stream

	mu      sync.Mutex // one write at a time
	out     *PatientWriter
	events  *sse.Writer
	silence *time.Ticker
}

// Stream starts an answer of events. ctx ends with the request, and when the client has
// gone. Close must be called before the handler returns.
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

// Close ends what Stream has started.
func (o *EventWriter) Close() { o.stop() }

// Events returns a writer of events that sends the header with the first one. Nothing is
// sent in a silence before KeepAlive is called.
func (x *Exchange) Events(obfuscate bool) *EventWriter {
	h := x.Header()
	h.Set("Content-Type", sse.ContentType)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	h.Set("X-Content-Type-Options", "nosniff")
	return newEventWriter(x, obfuscate)
}

// Unset removes the headers of a stream that has not been started, for another answer.
func (o *EventWriter) Unset() {
	o.x.Header().Del("Cache-Control")
	o.x.Header().Del("X-Accel-Buffering")
}

func newEventWriter(x *Exchange, obfuscate bool) *EventWriter {
	out, every := x.Patient(), x.server.Limits.KeepAlive
	return &EventWriter{x: x, every: every, obfuscate: obfuscate, out: out, events: sse.NewWriter(out), silence: time.NewTicker(every)}
}

// KeepAlive sends comments until stop is called, which must happen before the handler
// returns. It calls gone if the client has gone.
func (o *EventWriter) KeepAlive(gone func()) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-o.silence.C:
				if o.send(func() error { return o.events.Comment("keep-alive") }) != nil {
					gone()
					return
				}
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
		o.silence.Stop()
	}
}

// Obfuscates reports whether events hide the lengths of their texts.
func (o *EventWriter) Obfuscates() bool { return o.obfuscate }

// Event sends an event of the journal.
func (o *EventWriter) Event(ev store.Event) error {
	data, tail := []byte(ev.Data), []byte(nil)
	if o.obfuscate {
		data, tail = Obfuscate(data)
	}
	return o.send(func() error { return o.events.EventOf(string(ev.Type), data, tail) })
}

// JSON sends v as an event of this type; "" is none.
func (o *EventWriter) JSON(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return o.send(func() error { return o.events.Event(sse.Event{Type: name, Data: data}) })
}

// Done sends "[DONE]", the last event of some streams.
func (o *EventWriter) Done(name string) {
	_ = o.send(func() error { return o.events.Event(sse.Event{Type: name, Data: []byte("[DONE]")}) })
}

// Fail sends an error that is not in the journal, as the last event. It returns err for
// the log.
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

func (o *EventWriter) send(write func() error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := write(); err != nil {
		return err
	}
	o.silence.Reset(o.every)
	return o.flush()
}

func (o *EventWriter) flush() error { return o.out.control.Flush() }

// Obfuscates reports whether the stream of a request hides the lengths of its tokens,
// which is the default.
func Obfuscates(req *berth.ResponseRequest) bool {
	return req.StreamOptions == nil || req.StreamOptions.IncludeObfuscation == nil || *req.StreamOptions.IncludeObfuscation
}

// Obfuscate returns the event in two pieces, with an "obfuscation" of random characters
// if it carries a piece of text, so that the length of a packet does not show the
// length of a token: as the hosted service does, text and padding together are a
// multiple of 16 characters. It is added here and is not part of the event, so
// two readings of one event differ in it.
func Obfuscate(data []byte) (event, tail []byte) {
	const block = 16
	if !bytes.Contains(data, []byte(`"delta":"`)) || !bytes.HasSuffix(data, []byte("}")) {
		return data, nil
	}
	start, end, ok := jsonscan.Field(data, "delta")
	if !ok || data[start] != '"' {
		return data, nil
	}
	length := end - start
	if length < 4<<10 { // of a longer one the padding hides nothing
		var delta string
		if json.Unmarshal(data[start:end], &delta) != nil {
			return data, nil
		}
		length = utf8.RuneCountInString(delta)
	}
	padding := rand.Text()[:block-length%block]
	return data[:len(data)-1], []byte(`,"obfuscation":"` + padding + `"}`)
}
