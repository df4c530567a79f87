package chat

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth/model"
)

// A watch's time passes only while bytes are awaited, and begins again with each.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, w := newWatch(t.Context(), time.Minute)
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
				t.Fatalf("an upstream that lives: %v", err)
			}
			time.Sleep(time.Hour) // the reader's own time
		}
		w.limit = time.Second
		start := time.Now()
		_, err := w.Read(b[:])
		if !errors.Is(err, errSilent) || time.Since(start) != time.Second {
			t.Errorf("got %v after %v, want %v after 1s", err, time.Since(start), errSilent)
		}
	})
}

func TestWatchBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, w := newWatch(t.Context(), time.Minute)
		defer w.stop()
		start := time.Now()
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), errSilent) || time.Since(start) != time.Minute {
			t.Errorf("got %v after %v", context.Cause(ctx), time.Since(start))
		}
	})
}

// A piped upstream answers with what is written to a pipe.
type piped struct{ answer string }

func (p piped) RoundTrip(r *http.Request) (*http.Response, error) {
	in, out := io.Pipe()
	context.AfterFunc(r.Context(), func() { out.CloseWithError(context.Cause(r.Context())) })
	go func() { _, _ = io.WriteString(out, p.answer) }()
	return &http.Response{StatusCode: http.StatusOK, Body: in, Request: r}, nil
}

// How long an answer is waited for depends on how far it has come.
func TestPatience(t *testing.T) {
	tests := []struct {
		name, answer string
		want         time.Duration
		err          bool
	}{
		{"nothing", "", time.Minute, true},
		{"a role is no word", stream(`"role":"assistant","content":""`), time.Minute, true},
		{"a word", stream(`"content":"a"`), time.Hour, true},
		{"the end", stream(`"content":"a"`, end), afterEnd, false},
		{"the end mark", stream(`"content":"a"`, end) + "data: [DONE]\n\n", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, err := New(Options{BaseURL: "http://piped", FirstToken: time.Minute, Silence: time.Hour, HTTPClient: &http.Client{Transport: piped{tt.answer}}})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				for _, e := range p.Stream(t.Context(), &model.Request{Model: "m"}) {
					err = e
				}
				if got := time.Since(start); got != tt.want || (err != nil) != tt.err {
					t.Errorf("got %v after %v, want an error: %v, after %v", err, got, tt.err, tt.want)
				}
			})
		})
	}
}
