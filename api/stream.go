package api

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

// stream answers with the events of a response after a sequence number, to its
// end. It goes at the client's pace and delays nobody else. What goes wrong after
// the header is told as an error event; the error returned is for the log.
func (s *server) stream(w http.ResponseWriter, r *http.Request, p berth.ProjectID, id berth.ResponseID, after int64, obfuscate bool) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	h := w.Header()
	streamHeader(h)
	w.WriteHeader(http.StatusOK)
	out := newEventWriter(s.patiently(w), s.KeepAlive, obfuscate)
	if out.flush() != nil {
		return nil
	}
	defer out.keepAlive(cancel)()
	for ev, err := range s.Journal.Follow(ctx, p, id, after) {
		if ctx.Err() != nil && r.Context().Err() == nil {
			return nil // the keep-alive found that the client has gone
		}
		if err != nil {
			return out.fail(after+1, followError(ctx, id, err), h.Get("x-request-id"))
		}
		after = ev.SequenceNumber
		if out.event(ev) != nil {
			return nil
		}
	}
	return nil
}

func streamHeader(h http.Header) {
	h.Set("Content-Type", sse.ContentType)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	h.Set("X-Content-Type-Options", "nosniff")
}

// An eventWriter sends events to one client, and a comment after each silence.
// Its errors mean that the client has gone or has stopped reading.
type eventWriter struct {
	every     time.Duration
	obfuscate bool

	mu      sync.Mutex // one write at a time
	out     *patientWriter
	events  *sse.Writer
	silence *time.Ticker
}

func newEventWriter(out *patientWriter, every time.Duration, obfuscate bool) *eventWriter {
	return &eventWriter{every: every, obfuscate: obfuscate, out: out, events: sse.NewWriter(out), silence: time.NewTicker(every)}
}

// keepAlive sends comments until stop is called, which the handler must do
// before it returns. It calls gone if the client is.
func (o *eventWriter) keepAlive(gone func()) (stop func()) {
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

func (o *eventWriter) event(ev store.Event) error {
	data, tail := []byte(ev.Data), []byte(nil)
	if o.obfuscate {
		data, tail = obfuscated(data)
	}
	return o.send(func() error { return o.events.EventOf(string(ev.Type), data, tail) })
}

// fail tells an error that is not in the journal, as the last event. It returns
// err for the log.
func (o *eventWriter) fail(number int64, err error, requestID string) error {
	_, e := describe(err, requestID)
	code := e.Type
	if e.Code != nil {
		code = *e.Code
	}
	ev := berth.ErrorEvent(&berth.EventError{Type: e.Type, Code: code, Message: e.Message, Param: e.Param})
	ev.SequenceNumber = number
	data, _ := json.Marshal(ev) // strings and numbers always marshal
	_ = o.send(func() error {
		return o.events.Event(sse.Event{Type: string(berth.EventErrored), Data: data})
	})
	return err
}

func (o *eventWriter) send(write func() error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := write(); err != nil {
		return err
	}
	o.silence.Reset(o.every)
	return o.flush()
}

func (o *eventWriter) flush() error { return o.out.control.Flush() }

// obfuscated returns the event in two pieces, with an "obfuscation" of random characters
// if it carries a piece of text, so that the length of a packet does not tell the
// length of a token: as the hosted service does, text and padding together are a
// multiple of 16 characters. It is added here and is not part of the event, so
// two readings of one event differ in it.
func obfuscated(data []byte) (event, tail []byte) {
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
