package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/sse"
)

const (
	redraw   = 100 * time.Millisecond // least time between two states of a page
	patience = time.Minute            // for a browser that does not read
	elapse   = 2 * time.Second        // between two states of where the time of a running response went
	quiet    = 15 * time.Second       // after which a comment is sent
	maxEvent = 64 << 20               // bytes of one event
)

// follow serves GET /console/responses/{response}/events: elements of the
// response's page, each time they change, until the response ends. An element replaces the
// one with its id, or is added at the end. Deltas that come faster than redraw share an
// element.
func (*responsePage) follow(v *visit) error {
	body, err := v.send(http.MethodGet,
		"/v1/responses/"+url.PathEscape(v.r.PathValue("response"))+"?stream=true&include_obfuscation=false", nil, "")
	if err != nil {
		return err
	}
	defer body.Close()
	events := make(chan berth.Event)
	read := make(chan error, 1)
	go func() {
		read <- readEvents(body, events, v.r.Context().Done())
		close(events)
	}()
	defer func() {
		body.Close() // before the last event is received, so that the reader ends
		for range events {
			continue
		}
	}()

	models, err := modelsOf(v)
	if err != nil {
		return err
	}
	turns, earlier, err := readTurns(v)
	if err != nil {
		return err
	}
	out := newLiveWriter(v)
	out.models, out.before, out.earlier, out.title = models, turns[:len(turns)-1], earlier != "", title(turns)
	out.codes = codesOf(turns[len(turns)-1], baseURL(v))
	if list := v.r.URL.Query().Get("list"); list != "" {
		out.drawer = safeNext(list)
	}
	silence := time.NewTicker(quiet)
	defer silence.Stop()
	pulse := time.NewTicker(elapse)
	defer pulse.Stop()
	var due <-chan time.Time // nil if nothing has changed
	var s story
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				err := <-read
				if err != nil && v.r.Context().Err() == nil {
					v.console.log.Warn("failed to read the events of a response", "path", v.r.URL.Path, "err", err)
				}
				if out.draw(&s) == nil && s.Status.Final() {
					_ = out.send("end", []byte("end")) // otherwise the browser reconnects
				}
				return nil
			}
			if err := s.apply(&ev); err != nil {
				return nil // the browser reconnects and gets the events again
			}
			if due == nil {
				due = time.After(redraw)
			}
		case <-due:
			due = nil
			if out.draw(&s) != nil {
				return nil
			}
		case <-pulse.C:
			if out.drawTime(&s) != nil {
				return nil
			}
		case <-silence.C:
			if out.comment() != nil {
				return nil
			}
		}
	}
}

// readEvents sends the events of a stream to events until it ends or stop is closed.
func readEvents(body io.Reader, events chan<- berth.Event, stop <-chan struct{}) error {
	in := sse.NewReader(body, maxEvent)
	for {
		raw, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read event: %w", err)
		}
		var ev berth.Event
		if err := json.Unmarshal(raw.Data, &ev); err != nil {
			return fmt.Errorf("decode event: %w", err)
		}
		select {
		case events <- ev:
		case <-stop:
			return nil
		}
	}
}

// A liveWriter sends elements of a page. An error of its methods means that the browser is
// gone.
type liveWriter struct {
	visit   *visit
	control *http.ResponseController
	events  *sse.Writer
	models  []string // that a response can be continued with

	before  []*turnView // of the chain, before the response
	earlier bool        // there are others before these
	title   string      // of the chain
	drawer  string      // path of the list beside which the run is shown; "" on a page of its own
	codes   []codeView  // of the response's request
}

// newLiveWriter starts an answer of events.
func newLiveWriter(v *visit) *liveWriter {
	v.w.Header().Set("Content-Type", sse.ContentType)
	v.w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx buffers events
	v.w.WriteHeader(http.StatusOK)
	return &liveWriter{visit: v, control: http.NewResponseController(v.w), events: sse.NewWriter(v.w)}
}

// draw sends what has changed in a story since the last call.
func (o *liveWriter) draw(s *story) error {
	var b bytes.Buffer
	form := o.visit.formToken()
	turn := &turnView{Response: &s.Response, Output: s.entries}
	add := func(name string, data any) error { return templates().ExecuteTemplate(&b, name, data) }
	var err error
	if s.head && s.Status.Final() {
		if err = addTimes(o.visit, []*turnView{turn}); err != nil {
			return o.failed(err)
		}
		turn.Time.Open = true
		next := nextForm{Response: &s.Response, Form: form, Models: o.models}
		if o.drawer != "" {
			next.Back = "runs"
		}
		err = errors.Join(add("next", next),
			add("waterfall", turn.Time))
	}
	if s.head {
		err = errors.Join(err, add("head", head{&s.Response, true}))
	}
	if s.head || len(s.changed) > 0 {
		err = errors.Join(err, add("runbar", o.bar(turn)), add("laststeps", stepsOf([]*turnView{turn})))
		if form.May(attach) {
			findFiles(s.entries, func(berth.ContainerID) bool { return false })
		}
	}
	if err != nil {
		return o.failed(err)
	}
	var complete []*entry
	for i := range s.changed {
		complete = append(complete, s.entries[i])
	}
	render(o.visit.r.Context(), complete)
	for _, i := range slices.Sorted(maps.Keys(s.changed)) {
		if err := templates().ExecuteTemplate(&b, "entry", s.entries[i]); err != nil {
			return o.failed(err)
		}
	}
	s.head, s.changed = false, nil
	if b.Len() == 0 {
		return nil
	}
	return o.send("show", b.Bytes())
}

// bar returns the summary of the chain with its last response.
func (o *liveWriter) bar(turn *turnView) runBar {
	b := summaryBar(append(slices.Clone(o.before), turn), o.title, o.visit.formToken())
	b.Earlier, b.Drawer, b.Codes = o.earlier, o.drawer, o.codes
	return b
}

// drawTime sends where the time of a response has gone that runs, with a step that has not ended, and what it has cost:
// its events do not tell, but the stored response does.
func (o *liveWriter) drawTime(s *story) error {
	if s.ID == "" || s.Status.Final() {
		return nil
	}
	var stored berth.Response
	if err := o.visit.get(pathTo("/v1/responses", s.ID), &stored); err != nil || stored.Status.Final() {
		return nil // the stream tells
	}
	s.Berth = stored.Berth
	turn := &turnView{Response: &s.Response, Output: s.entries}
	if err := addTimes(o.visit, []*turnView{turn}); err != nil {
		return o.failed(err)
	}
	turn.Time.Open = true
	var b bytes.Buffer
	err := errors.Join(templates().ExecuteTemplate(&b, "runbar", o.bar(turn)),
		templates().ExecuteTemplate(&b, "waterfall", turn.Time))
	if err != nil {
		return o.failed(err)
	}
	return o.send("show", b.Bytes())
}

func (o *liveWriter) failed(err error) error {
	o.visit.console.log.Error("console failed", "path", o.visit.r.URL.Path, "err", err)
	return err
}

func (o *liveWriter) send(name string, data []byte) error {
	_ = o.control.SetWriteDeadline(time.Now().Add(patience)) // some connections have none
	if err := o.events.Event(sse.Event{Type: name, Data: data}); err != nil {
		return err
	}
	return o.flush()
}

func (o *liveWriter) comment() error {
	_ = o.control.SetWriteDeadline(time.Now().Add(patience))
	if err := o.events.Comment("keep-alive"); err != nil {
		return err
	}
	return o.flush()
}

func (o *liveWriter) flush() error {
	if err := o.control.Flush(); err != nil {
		return fmt.Errorf("flush events: %w", err)
	}
	return nil
}
