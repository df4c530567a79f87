package container

import (
	"context"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/clock"
)

// errStopping is the error of calls after Close.
var errStopping = berth.Errorf(berth.CodeUnavailable, "The server is stopping.")

// workers runs background work until the service closes.
type workers struct {
	life    context.Context // of the background work; ends with errStopping
	cancel  context.CancelCauseFunc
	closing chan struct{} // closed when closed is set
	clock   clock.Clock

	mu     sync.Mutex
	closed bool
	tasks  int            // running goroutines of spawn
	idle   sync.Cond      // signaled when there are no tasks
	group  sync.WaitGroup // goroutines of spawn and loop
}

func newWorkers(c clock.Clock) *workers {
	w := &workers{closing: make(chan struct{}), clock: c}
	w.idle.L = &w.mu
	w.life, w.cancel = context.WithCancelCause(context.Background())
	return w
}

// spawn runs f in the background. It returns false, and does not run f, if the service
// is closing.
func (w *workers) spawn(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.tasks++
	w.group.Go(func() {
		defer w.finish()
		f()
	})
	return true
}

// finish records the end of a task.
func (w *workers) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tasks--; w.tasks == 0 {
		w.idle.Broadcast()
	}
}

// settle waits until no goroutine of spawn runs.
func (w *workers) settle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.tasks > 0 {
		w.idle.Wait()
	}
}

// loop is spawn for a goroutine that runs until the service closes.
func (w *workers) loop(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.group.Go(f)
	return true
}

// stopped reports whether the service is closing.
func (w *workers) stopped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// refuse makes spawn refuse further work. It returns false if it was called before.
func (w *workers) refuse() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.closed = true
	close(w.closing)
	return true
}

// stop ends the background work: after grace its context is canceled, and stop returns
// when all of it has returned.
func (w *workers) stop(grace time.Duration) {
	done := make(chan struct{})
	go func() {
		w.group.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-w.clock.After(grace):
	}
	w.cancel(errStopping)
	<-done
}

// untilClosing returns a context that ends with ctx, or when the service is closing.
func (w *workers) untilClosing(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-w.closing:
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx, cancel
}
