package balance

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

func requestFor(name string) *model.Request { return &model.Request{Model: name} }

// A failing model is skipped. Other models of its upstream are still used.
func TestBreakerOfOneModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		u := open(t, n, UpstreamOptions{Name: "a", Breaker: Breaker{Failures: 3, Open: time.Minute}},
			func(ctx context.Context, r *model.Request, y func(model.Delta, error) bool) {
				if r.Model == "ill" {
					fails(broken)(ctx, r, y)
					return
				}
				answers("well")(ctx, r, y)
			})
		g := group(t, Options{Primaries: []Target{{Upstream: u}}})
		for range 30 {
			_, _, _ = collect(t.Context(), g, requestFor("ill"))
			if text, _, err := collect(t.Context(), g, requestFor("well")); err != nil || text == "" {
				t.Fatalf("a model that does not fail: got %q, %v", text, err)
			}
		}
		if called := len(n.take()); called != 33 {
			t.Errorf("the upstream was called %d times, want 3 times for the failing model", called)
		}
		if got := u.Status().Circuit; got != "open" {
			t.Errorf("the circuit is shown as %s", got)
		}
	})
}

// An upstream without a connection is skipped for all models.
func TestBreakerOfAllModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		u := open(t, n, UpstreamOptions{Name: "a", Breaker: Breaker{Failures: 3, Open: time.Minute}},
			fails(&berth.Error{Code: berth.CodeUpstream, Message: "gone", Err: model.ErrUnreachable}))
		g := group(t, Options{Primaries: []Target{{Upstream: u}}})
		for i := range 10 {
			_, _, _ = collect(t.Context(), g, requestFor(fmt.Sprint(i)))
		}
		if called := len(n.take()); called != 3 {
			t.Errorf("the upstream was called %d times, want 3", called)
		}
		time.Sleep(time.Minute + 1)
		_, _, _ = collect(t.Context(), g, requestFor("other"))
		_, _, _ = collect(t.Context(), g, requestFor("another"))
		if called := len(n.take()); called != 1 {
			t.Errorf("after its time the upstream was called %d times, want once", called)
		}
	})
}

// The number of breakers is bounded for any number of names.
func TestBreakersAreBounded(t *testing.T) {
	u := open(t, &notes{}, UpstreamOptions{Name: "a"}, answers("x"))
	g := group(t, Options{Primaries: []Target{{Upstream: u}}})
	for i := range 3 * maxModels {
		_, _, _ = collect(t.Context(), g, requestFor(fmt.Sprint(i)))
	}
	if got := len(u.breaker.models); got > maxModels {
		t.Errorf("there are %d breakers", got)
	}
}
