package upstream

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// The limit counts only time spent waiting for bytes, and restarts with each read.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, w := newWatch(t.Context(), time.Minute, time.Second)
		defer w.stop()
		in, out := io.Pipe()
		context.AfterFunc(ctx, func() { out.CloseWithError(context.Cause(ctx)) })
		w.watch(in)
		go func() {
			for range 3 {
				time.Sleep(59 * time.Second)
				_, _ = out.Write([]byte("a"))
			}
		}()
		var b [1]byte
		for range 3 {
			if _, err := w.Read(b[:]); err != nil {
				t.Fatalf("read before the limit: %v", err)
			}
			time.Sleep(time.Hour) // the consumer's own time
		}
		w.progress(Progress{}, true)
		start := time.Now()
		_, err := w.Read(b[:])
		if !errors.Is(err, errSilent) || time.Since(start) != time.Second {
			t.Errorf("got %v after %v, want %v after 1s", err, time.Since(start), errSilent)
		}
	})
}

func TestWatchBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, w := newWatch(t.Context(), time.Minute, time.Second)
		defer w.stop()
		start := time.Now()
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), errSilent) || time.Since(start) != time.Minute {
			t.Errorf("got %v after %v", context.Cause(ctx), time.Since(start))
		}
	})
}
