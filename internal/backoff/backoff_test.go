package backoff_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/backoff"
)

func TestDelays(t *testing.T) {
	d := backoff.Delays{First: 2, Max: 10}
	var got []time.Duration
	for range 5 {
		got = append(got, d.Next())
	}
	d.Reset()
	got = append(got, d.Next())
	if want := []time.Duration{2, 4, 8, 10, 10, 2}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSleep(t *testing.T) {
	if err := backoff.Sleep(t.Context(), 1); err != nil {
		t.Error(err)
	}
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	if err := backoff.Sleep(ctx, time.Hour); err != stopped {
		t.Errorf("got %v, want %v", err, stopped)
	}
}
