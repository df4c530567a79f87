package upstream

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"
)

// errSilent is why a request is given up whose upstream says nothing any more.
var errSilent = errors.New("the upstream fell silent")

// afterEnd is how long the usage and the end mark may take after the last word.
const afterEnd = 10 * time.Second

// A Watch is the body of an answer, which is given up when the upstream shows no
// sign of life for too long. It counts only time spent waiting for bytes: a slow
// reader of the answer is not the upstream's fault.
type Watch struct {
	limit   time.Duration
	silence time.Duration // the limit after the first word
	timer   *time.Timer
	cancel  context.CancelCauseFunc
	in      io.Reader
	begun   bool // an event of the dialect has come
	any     bool // bytes have come
	broken  bool // the body ended with an error
}

// newWatch returns a context for the request, which ends with errSilent unless
// the answer begins within first.
func newWatch(ctx context.Context, first, silence time.Duration) (context.Context, *Watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &Watch{limit: first, silence: silence, cancel: cancel, timer: time.AfterFunc(first, func() { cancel(errSilent) })}
}

// watch takes the body of the answer, to be read through the watch.
func (w *Watch) watch(in io.Reader) {
	w.timer.Stop()
	w.in = in
}

// heard shortens the limit when the first word or call has come, and again when
// the upstream has said why it ended.
func (w *Watch) heard(words, ended bool) {
	switch {
	case w == nil:
	case ended:
		w.limit = min(w.silence, afterEnd)
	case words:
		w.limit = w.silence
	}
}

// begin records whether an event of the dialect has come.
func (w *Watch) begin(begun bool) {
	if w != nil {
		w.begun = begun
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

// mismatch returns what res is if it is not an answer in the vendor's dialect, or "".
func (w *Watch) mismatch(res *http.Response) string {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case w.begun, w.broken:
		return ""
	case kind != "" && kind != eventStream:
		return kind + ", which is not an event stream"
	case !w.any:
		return "without a body"
	}
	return "without an event of its dialect"
}

const eventStream = "text/event-stream"

// stop ends the request's context.
func (w *Watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}
