package chat

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/upstream"
)

// A piped upstream sends its answer through a pipe.
type piped struct{ answer string }

func (p piped) RoundTrip(r *http.Request) (*http.Response, error) {
	in, out := io.Pipe()
	context.AfterFunc(r.Context(), func() { out.CloseWithError(context.Cause(r.Context())) })
	go func() { _, _ = io.WriteString(out, p.answer) }()
	return &http.Response{StatusCode: http.StatusOK, Body: in, Request: r}, nil
}

// The timeout depends on the progress of the answer.
func TestTimeouts(t *testing.T) {
	tests := []struct {
		name, answer string
		want         time.Duration
		err          bool
	}{
		{"nothing", "", time.Minute, true},
		{"a role of the wrong type", stream(`"role":"assistant","content":""`), time.Minute, true},
		{"some text", stream(`"content":"a"`), time.Hour, true},
		{"the end", stream(`"content":"a"`, end), 10 * time.Second, false},
		{"the end mark", stream(`"content":"a"`, end) + "data: [DONE]\n\n", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, err := New(Options{Options: upstream.Options{BaseURL: "http://piped", FirstToken: time.Minute,
					Silence: time.Hour, HTTPClient: &http.Client{Transport: piped{tt.answer}}}})
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
