package balance

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/model"
)

func TestHedge(t *testing.T) {
	// after delays a reply.
	after := func(d time.Duration, then reply) reply {
		return func(ctx context.Context, req *model.Request, yield func(model.Delta, error) bool) {
			if err := backoff.Sleep(ctx, d); err != nil {
				yield(nil, err)
				return
			}
			then(ctx, req, yield)
		}
	}
	tests := []struct {
		name   string
		first  reply
		second reply
		text   string
		called []string
		took   time.Duration
		code   berth.Code
	}{
		{"the first is quick", after(time.Second, answers("a")), answers("b"), "a", []string{"a"}, time.Second, ""},
		{"the first is slow", after(time.Minute, answers("a")), answers("b"), "b", []string{"a", "b"}, 2 * time.Second,
			""},
		{"the second is slower", after(3*time.Second, answers("a")), after(time.Minute, answers("b")), "a",
			[]string{"a", "b"}, 3 * time.Second, ""},
		{"the first fails", fails(broken), answers("b"), "b", []string{"a", "b"}, 0, ""},
		{"the first fails late", after(3*time.Second, fails(broken)), after(2*time.Second, answers("b")), "b",
			[]string{"a", "b"}, 4 * time.Second, ""},
		{"the second fails", after(3*time.Second, answers("a")), fails(broken), "a", []string{"a", "b"},
			3 * time.Second, ""},
		{"both fail", after(3*time.Second, fails(broken)), fails(keyless), "", []string{"a", "b"}, 3 * time.Second,
			berth.CodeUpstream},
		{"the client's error", fails(invalid), answers("b"), "", []string{"a"}, 0, berth.CodeInvalid},
		{"the winner's answer breaks off", fails(broken, "a"), answers("b"), "a", []string{"a"}, 0, berth.CodeUpstream},
		{"the first panics", func(context.Context, *model.Request, func(model.Delta, error) bool) {
			panic("!")
		}, answers("b"), "", []string{"a"}, 0, berth.CodeInternal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // fails if a goroutine remains
				n := &notes{}
				g := group(t, Options{Primaries: []Target{{Upstream: open(t, n, UpstreamOptions{Name: "a"}, tt.first)}},
					Fallbacks:  []Target{{Upstream: open(t, n, UpstreamOptions{Name: "b"}, tt.second)}},
					HedgeAfter: 2 * time.Second})
				start := time.Now()
				text, _, err := collect(t.Context(), g, request())
				if called := n.take(); text != tt.text || berth.ErrorCode(err) != tt.code ||
					!slices.Equal(called, tt.called) || time.Since(start) != tt.took {
					t.Errorf("got %q, %v from %v in %v, want %q, %q from %v in %v", text, err, called,
						time.Since(start), tt.text, tt.code, tt.called, tt.took)
				}
			})
		})
	}
}
