package balance

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// Keys share the load. A rate-limited key rests for the requested time.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		first, second := answers("x"), answers("x")
		u := open(t, n, UpstreamOptions{Name: "a"}, func(ctx context.Context, r *model.Request,
			y func(model.Delta, error) bool) {
			first(ctx, r, y)
		},
			func(ctx context.Context, r *model.Request, y func(model.Delta, error) bool) { second(ctx, r, y) })
		g := group(t, Options{Primaries: []Target{{Upstream: u}}})
		want := func(what string, called ...string) {
			t.Helper()
			if got := n.take(); !slices.Equal(got, called) {
				t.Errorf("%s: used %v, want %v", what, got, called)
			}
		}
		for range 4 {
			_, _, _ = collect(t.Context(), g, request())
		}
		want("in turn", "a/0", "a/1", "a/0", "a/1")

		_, f, _ := collect(t.Context(), g, request())
		for range 2 {
			req := request()
			req.Prefer = f.Origin
			_, _, _ = collect(t.Context(), g, req)
		}
		want("the same for a chain", "a/0", "a/0", "a/0")

		first = fails(model.WithRetryAfter(limited, 5*time.Second))
		req := request()
		req.Prefer = f.Origin
		if text, _, err := collect(t.Context(), g, req); text != "x" || err != nil {
			t.Errorf("got %q, %v", text, err)
		}
		want("the other, if one rests", "a/0", "a/1")
		first = answers("x")
		_, _, _ = collect(t.Context(), g, request())
		want("it rests", "a/1")
		second = fails(model.WithRetryAfter(limited, time.Minute))
		_, _, err := collect(t.Context(), g, request())
		if d, ok := model.RetryAfter(err); !ok || d > 5*time.Second || berth.ErrorCode(err) != berth.CodeRateLimited {
			t.Errorf("with none left: got %v after %v", err, d)
		}
		want("none is left", "a/1")
		time.Sleep(5 * time.Second)
		_, _, _ = collect(t.Context(), g, request())
		want("it has rested", "a/0")

		time.Sleep(time.Minute)
		first, second = fails(keyless), answers("x")
		if text, _, err := collect(t.Context(), g, req); text != "x" || err != nil {
			t.Errorf("with a key that is refused: got %q, %v", text, err)
		}
		first = answers("x")
		_, _, _ = collect(t.Context(), g, req)
		want("one that is refused is set aside", "a/0", "a/1", "a/1")
		second = fails(keyless)
		if _, _, err := collect(t.Context(), g, request()); err != nil {
			t.Errorf("got %v", err)
		}
		want("until there is no other", "a/1", "a/0")
	})
}

// The only key is used again, because the operator may have fixed it.
func TestOnlyKeyRefused(t *testing.T) {
	n := &notes{}
	var log bytes.Buffer
	u := open(t, n, UpstreamOptions{Name: "a", Log: slog.New(slog.NewTextHandler(&log, nil))}, fails(keyless))
	g := group(t, Options{Primaries: []Target{{Upstream: u}}})
	for range 2 {
		if _, _, err := collect(t.Context(), g, request()); berth.ErrorCode(err) != berth.CodeUnavailable {
			t.Errorf("got %v", err)
		}
	}
	if got := n.take(); len(got) != 2 {
		t.Errorf("called %v", got)
	}
	if got := log.String(); strings.Count(got, "refuses its only key; continuing to use it") != 1 {
		t.Errorf("the log says %s", got)
	}
}
