package upstream

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"
)

// errSilent cancels a request whose upstream stopped responding.
var errSilent = errors.New("the upstream stopped responding")

// afterEnd bounds the wait for usage and end mark after the finish reason.
const afterEnd = 10 * time.Second

// A Watch reads the body of an answer and cancels the request when the upstream sends
// nothing for too long. It counts only time spent waiting for bytes: a slow consumer
// of the answer is not the upstream's fault.
type Watch struct {
	limit   time.Duration
	silence time.Duration // the limit after the first output
	timer   *time.Timer
	cancel  context.CancelCauseFunc
	in      io.Reader
	started bool // an event of the dialect has arrived
	any     bool // bytes have arrived
	broken  bool // the body ended with an error
}

// newWatch returns a context for the request. It ends with errSilent unless the answer
// starts within first.
func newWatch(ctx context.Context, first, silence time.Duration) (context.Context, *Watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &Watch{limit: first, silence: silence, cancel: cancel, timer: time.AfterFunc(first, func() {
		cancel(errSilent)
	})}
}

// watch sets the body of the answer. It is read through the watch.
func (w *Watch) watch(in io.Reader) {
	w.timer.Stop()
	w.in = in
}

// progress shortens the limit after the first output, and again after the finish
// reason.
func (w *Watch) progress(at Progress, output bool) {
	if w == nil {
		return
	}
	w.started = at.Started
	switch {
	case at.Ended:
		w.limit = min(w.silence, afterEnd)
	case output:
		w.limit = w.silence
	}
}

func (w *Watch) Read(b []byte) (int, error) {
	w.timer.Reset(w.limit)
	defer w.timer.Stop()
	n, err := w.in.Read(b)
	w.any = w.any || n > 0
	w.broken = err != nil && err != io.EOF
	return n, err
}

// mismatch describes an answer that is not in the vendor's dialect. It returns "" if
// the answer is in the dialect, or if that is unknown because the body broke.
func (w *Watch) mismatch(res *http.Response) string {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case w.started, w.broken:
		return ""
	case kind != "" && kind != eventStream:
		return kind + ", which is not an event stream"
	case !w.any:
		return "without a body"
	}
	return "without an event of its dialect"
}

const eventStream = "text/event-stream"

// explain returns err, as a mismatch if the answer is not in the vendor's dialect.
func (w *Watch) explain(res *http.Response, err error) error {
	if what := w.mismatch(res); what != "" {
		return &mismatch{status: res.StatusCode, what: what, err: err}
	}
	return err
}

// stop ends the request's context.
func (w *Watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}
