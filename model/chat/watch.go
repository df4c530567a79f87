package chat

import (
	"context"
	"errors"
	"io"
	"time"
)

// errSilent is why a request is given up whose upstream says nothing any more.
var errSilent = errors.New("the upstream fell silent")

// afterEnd is how long the usage and the end mark may take after the last word.
const afterEnd = 10 * time.Second

// A watch gives up a request when the upstream shows no sign of life for longer
// than limit. It counts only time spent waiting for bytes: a slow reader of the
// answer is not the upstream's fault.
type watch struct {
	limit  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
	in     io.Reader
}

// newWatch returns a context for the request, which ends with errSilent unless
// the answer begins within limit.
func newWatch(ctx context.Context, limit time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &watch{limit: limit, cancel: cancel, timer: time.AfterFunc(limit, func() { cancel(errSilent) })}
}

// watch takes the body of the answer, to be read through the watch.
func (w *watch) watch(in io.Reader) {
	w.timer.Stop()
	w.in = in
}

func (w *watch) Read(b []byte) (int, error) {
	w.timer.Reset(w.limit)
	defer w.timer.Stop()
	return w.in.Read(b)
}

// stop ends the request's context.
func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}
