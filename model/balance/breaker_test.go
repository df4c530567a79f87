package balance

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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

// TestOpenCircuit: the error names the upstream and when it is tried again.
func TestOpenCircuit(t *testing.T) {
	b := newBreaker(Breaker{}, "The upstream 'a'", slog.New(slog.DiscardHandler), func(error) bool { return true })
	b.till = time.Now().Add(8 * time.Second)
	if got := b.skipped().Error(); !strings.Contains(got,
		"The upstream 'a' has failed too often. Berth tries it again in 8 s.") {
		t.Errorf("got %q", got)
	}
}

// A failing upstream is skipped, and tried by one turn after a time.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		reply := fails(broken)
		u := open(t, n, UpstreamOptions{Name: "a", Breaker: Breaker{Failures: 3, Open: time.Minute}},
			func(ctx context.Context, r *model.Request, y func(model.Delta, error) bool) { reply(ctx, r, y) })
		g := group(t, Options{Primaries: []Target{{Upstream: u}},
			Fallbacks: []Target{{Upstream: open(t, n, UpstreamOptions{Name: "b"}, answers("b"))}}})
		want := func(what, circuit string, called ...string) {
			t.Helper()
			if got := n.take(); !slices.Equal(got, called) || u.Status().Circuit != circuit {
				t.Errorf("%s: called %v, circuit %s, want %v, %s", what, got, u.Status().Circuit, called, circuit)
			}
		}
		for range 5 {
			_, _, _ = collect(t.Context(), g, request())
		}
		want("after three failures", "open", "a", "b", "a", "b", "a", "b", "b", "b")
		lone := group(t, Options{Primaries: []Target{{Upstream: u}}})
		_, _, err := collect(t.Context(), lone, request())
		if d, ok := model.RetryAfter(err); !ok || d != time.Minute || berth.ErrorCode(err) != berth.CodeUpstream {
			t.Errorf("with no other: got %v after %v", err, d)
		}
		want("with no other", "open")
		time.Sleep(time.Minute + 1)

		reply = hangs
		ctx, cancel := context.WithCancel(t.Context())
		probe := make(chan error)
		go func() { _, _, err := collect(ctx, g, request()); probe <- err }()
		synctest.Wait()
		_, _, _ = collect(t.Context(), g, request())
		want("one is let through", "half-open", "a", "b")
		cancel()
		<-probe
		reply = fails(broken)
		_, _, _ = collect(t.Context(), g, request())
		want("a caller that leaves does not count", "open", "a", "b")
		time.Sleep(time.Minute + 1)
		reply = answers("a")
		_, _, _ = collect(t.Context(), g, request())
		want("it answers again", "closed", "a")

		reply = fails(broken, "a word")
		for range 3 {
			_, _, _ = collect(t.Context(), g, request())
		}
		want("an answer that breaks off is a failure, even between successes", "closed", "a", "a", "a")
		for range 20 {
			_, _, _ = collect(t.Context(), g, request())
		}
		if u.Status().Circuit != "open" {
			t.Errorf("half of the turns broke off: the circuit is %s", u.Status().Circuit)
		}
	})
}

// An error that the client must fix is not a failure of the upstream.
func TestBreakerIgnoresClients(t *testing.T) {
	u := open(t, &notes{}, UpstreamOptions{Name: "a", Breaker: Breaker{Failures: 1}}, fails(invalid))
	g := group(t, Options{Primaries: []Target{{Upstream: u}}})
	for range 3 {
		_, _, _ = collect(t.Context(), g, request())
	}
	if got := u.Status().Circuit; got != "closed" {
		t.Errorf("the circuit is %s", got)
	}
}
