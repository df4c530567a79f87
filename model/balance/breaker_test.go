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

func askFor(name string) *model.Request { return &model.Request{Model: name} }

// A model that fails is left alone; other models of its upstream are asked, however
// often it fails.
func TestBreakerOfOneModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		u := open(t, n, UpstreamOptions{Name: "a", Breaker: Breaker{Failures: 3, Open: time.Minute}},
			func(ctx context.Context, r *model.Request, y func(model.Delta, error) bool) {
				if r.Model == "ill" {
					fails(broken)(ctx, r, y)
					return
				}
				says("well")(ctx, r, y)
			})
		g := group(t, Options{Primaries: []Target{{Upstream: u}}})
		for range 30 {
			_, _, _ = hear(t.Context(), g, askFor("ill"))
			if text, _, err := hear(t.Context(), g, askFor("well")); err != nil || text == "" {
				t.Fatalf("a model that does not fail: got %q, %v", text, err)
			}
		}
		if asked := len(n.take()); asked != 33 {
			t.Errorf("the upstream was asked %d times, want 3 times for the model that fails", asked)
		}
		if got := u.Status().Circuit; got != "open" {
			t.Errorf("the circuit is shown as %s", got)
		}
	})
}

// An upstream without a connection is left alone for all models.
func TestBreakerOfAllModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		u := open(t, n, UpstreamOptions{Name: "a", Breaker: Breaker{Failures: 3, Open: time.Minute}},
			fails(&berth.Error{Code: berth.CodeUpstream, Message: "gone", Err: model.ErrUnreachable}))
		g := group(t, Options{Primaries: []Target{{Upstream: u}}})
		for i := range 10 {
			_, _, _ = hear(t.Context(), g, askFor(fmt.Sprint(i)))
		}
		if asked := len(n.take()); asked != 3 {
			t.Errorf("the upstream was asked %d times, want 3", asked)
		}
		time.Sleep(time.Minute + 1)
		_, _, _ = hear(t.Context(), g, askFor("other"))
		_, _, _ = hear(t.Context(), g, askFor("another"))
		if asked := len(n.take()); asked != 1 {
			t.Errorf("after its time the upstream was asked %d times, want once", asked)
		}
	})
}

// Any number of names does not make the breakers grow without bound.
func TestBreakersAreBounded(t *testing.T) {
	u := open(t, &notes{}, UpstreamOptions{Name: "a"}, says("x"))
	g := group(t, Options{Primaries: []Target{{Upstream: u}}})
	for i := range 3 * maxModels {
		_, _, _ = hear(t.Context(), g, askFor(fmt.Sprint(i)))
	}
	if got := len(u.breaker.models); got > maxModels {
		t.Errorf("there are %d breakers", got)
	}
}
