package balance

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A fakeProvider is a provider with a fixed behaviour. It records its calls in notes.
type fakeProvider struct {
	name  string
	notes *notes
	reply func(ctx context.Context, req *model.Request, yield func(model.Delta, error) bool)
}

// notes records the names of the called providers, in order.
type notes struct {
	mu     sync.Mutex
	called []string
	reqs   []*model.Request
}

func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	called := n.called
	n.called, n.reqs = nil, nil
	return called
}

func (v *fakeProvider) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		v.notes.mu.Lock()
		v.notes.called = append(v.notes.called, v.name)
		v.notes.reqs = append(v.notes.reqs, req)
		v.notes.mu.Unlock()
		v.reply(ctx, req, yield)
	}
}

type reply = func(context.Context, *model.Request, func(model.Delta, error) bool)

// answers returns a reply with a text.
func answers(text string) reply {
	return func(_ context.Context, _ *model.Request, yield func(model.Delta, error) bool) {
		_ = yield(model.Text{Text: text}, nil) && yield(finished, nil)
	}
}

var finished = model.Finish{Reason: model.FinishStop,
	Usage: berth.Usage{InputTokens: 10, OutputTokens: 5, TotalTokens: 15}}

// fails returns a reply with an error, after some text.
func fails(err error, words ...string) reply {
	return func(_ context.Context, _ *model.Request, yield func(model.Delta, error) bool) {
		for _, w := range words {
			if !yield(model.Text{Text: w}, nil) {
				return
			}
		}
		yield(nil, err)
	}
}

// hangs yields nothing until its caller cancels.
func hangs(ctx context.Context, _ *model.Request, yield func(model.Delta, error) bool) {
	<-ctx.Done()
	yield(nil, context.Cause(ctx))
}

var (
	broken  = &berth.Error{Code: berth.CodeUpstream, Message: "broken"}
	limited = &berth.Error{Code: berth.CodeRateLimited, Message: "slow down"}
	invalid = &berth.Error{Code: berth.CodeInvalid, Message: "too hot"}
	missing = &berth.Error{Code: berth.CodeNotFound, Message: "no such model"}
	keyless = &berth.Error{Code: berth.CodeUnavailable, Message: "refused (401)", Err: model.ErrKey}
)

// open returns an upstream with a fakeProvider for each key.
func open(t *testing.T, n *notes, opts UpstreamOptions, replies ...reply) *Upstream {
	t.Helper()
	for i, reply := range replies {
		name := opts.Name
		if len(replies) > 1 {
			name = fmt.Sprintf("%s/%d", opts.Name, i)
		}
		opts.Keys = append(opts.Keys, Key{Name: fmt.Sprintf("KEY_%d", i), Provider: &fakeProvider{name, n, reply}})
	}
	u, err := NewUpstream(opts)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func group(t *testing.T, opts Options) *Group {
	t.Helper()
	g, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// collect sends a turn and returns the text, the Finish and the error.
func collect(ctx context.Context, p model.Provider, req *model.Request) (text string, finish *model.Finish, err error) {
	for d, e := range p.Stream(ctx, req) {
		switch d := d.(type) {
		case model.Text:
			text += d.Text
		case model.Finish:
			finish = &d
		}
		err = e
	}
	return text, finish, err
}

func request() *model.Request { return &model.Request{Model: "m"} }

// Before the first output a failed turn moves to the next upstream, unless the client
// caused the error. After it, the error is yielded.
func TestFailover(t *testing.T) {
	wait := func(d time.Duration) error { return model.WithRetryAfter(limited, d) }
	tests := []struct {
		name   string
		first  reply
		called string
		text   string
		err    error
	}{
		{"it answers", answers("hi"), "a", "hi", nil},
		{"it fails", fails(broken), "a b", "b", nil},
		{"it is rate limited", fails(limited), "a b", "b", nil},
		{"rate limited for a known time", fails(wait(time.Hour)), "a b", "b", nil},
		{"it refuses the key", fails(keyless), "a b", "b", nil},
		{"it lacks the model", fails(missing), "a b", "b", nil},
		{"the request is wrong", fails(invalid), "a", "", invalid},
		{"the context is too long", fails(model.TooLong("")), "a", "", model.TooLong("")},
		{"it breaks off", fails(broken, "h"), "a", "h", broken},
		{"it ends without a Finish", func(context.Context, *model.Request, func(model.Delta, error) bool) {}, "a b",
			"b", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := &notes{}
			g := group(t, Options{Primaries: []Target{{Upstream: open(t, n, UpstreamOptions{Name: "a"}, tt.first)}},
				Fallbacks: []Target{{Upstream: open(t, n, UpstreamOptions{Name: "b"}, answers("b"))}}})
			text, _, err := collect(t.Context(), g, request())
			if got := strings.Join(n.take(), " "); got != tt.called || text != tt.text ||
				berth.ErrorCode(err) != berth.ErrorCode(tt.err) {
				t.Errorf("got %q, %v from %s, want %q, %v from %s", text, err, got, tt.text, tt.err, tt.called)
			}
		})
	}
}

// A turn waits for a near Retry-After if the upstream has no other key.
func TestNearRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		count := 0
		u := open(t, n, UpstreamOptions{Name: "a"}, func(ctx context.Context, req *model.Request,
			yield func(model.Delta, error) bool) {
			if count++; count == 1 {
				yield(nil, model.WithRetryAfter(limited, time.Second))
				return
			}
			answers("hi")(ctx, req, yield)
		})
		g := group(t, Options{Primaries: []Target{{Upstream: u}},
			Fallbacks: []Target{{Upstream: open(t, n, UpstreamOptions{Name: "b"}, answers("b"))}}})
		start := time.Now()
		if text, _, err := collect(t.Context(), g, request()); text != "hi" || err != nil ||
			time.Since(start) != time.Second {
			t.Errorf("got %q, %v after %v", text, err, time.Since(start))
		}
	})
}

// When all fail, the error is one that may pass, with the shortest time to retry.
func TestAllFail(t *testing.T) {
	after := func(d time.Duration) error { return model.WithRetryAfter(limited, d) }
	for name, tt := range map[string]struct {
		errs  []error
		code  berth.Code
		after time.Duration
	}{
		"one that may pass": {[]error{keyless, broken, missing}, berth.CodeUpstream, 0},
		"the nearest": {[]error{after(time.Hour), after(time.Minute), keyless}, berth.CodeRateLimited,
			time.Minute},
		"at any time":        {[]error{after(time.Hour), broken}, berth.CodeUpstream, 0},
		"none that may pass": {[]error{keyless, missing}, berth.CodeUnavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var targets []Target
			for i, err := range tt.errs {
				targets = append(targets, Target{Upstream: open(t, &notes{}, UpstreamOptions{Name: fmt.Sprint(i)},
					fails(err))})
			}
			_, _, err := collect(t.Context(), group(t, Options{Primaries: targets[:1], Fallbacks: targets[1:]}),
				request())
			if d, _ := model.RetryAfter(err); berth.ErrorCode(err) != tt.code || d != tt.after {
				t.Errorf("got %v after %v, want %s after %v", err, d, tt.code, tt.after)
			}
		})
	}
}

// Primaries share the turns by weight. A chain stays with its upstream. A prompt cache
// key replaces chance.
func TestWeights(t *testing.T) {
	n := &notes{}
	a, b := open(t, n, UpstreamOptions{Name: "a"}, answers("x")), open(t, n, UpstreamOptions{Name: "b"}, answers("x"))
	g := group(t, Options{Primaries: []Target{{Upstream: a, Weight: 3}, {Upstream: b}}})
	count := func(each func(i int) *model.Request) int {
		for i := range 4000 {
			_, _, _ = collect(t.Context(), g, each(i))
		}
		of := 0
		for _, name := range n.take() {
			if name == "a" {
				of++
			}
		}
		return of
	}
	if got := count(func(int) *model.Request { return request() }); got < 2800 || got > 3200 {
		t.Errorf("by chance: got %d of 4000, want about 3000", got)
	}
	named := func(key string) *model.Request {
		req := request()
		req.Hints.PromptCacheKey = key
		return req
	}
	if got := count(func(i int) *model.Request { return named(fmt.Sprint("user-", i)) }); got < 2800 || got > 3200 {
		t.Errorf("by a cache key: got %d of 4000, want about 3000", got)
	}
	if got := count(func(int) *model.Request { return named("one") }); got != 0 && got != 4000 {
		t.Errorf("by the same cache key: got %d of 4000", got)
	}
	req := request()
	req.Prefer = model.Origin{Upstream: "b"}
	if got := count(func(int) *model.Request { return req }); got != 0 {
		t.Errorf("a chain that is at b was at a %d times", got)
	}
	req.Attempt = 1
	if got := count(func(int) *model.Request { return req }); got != 4000 {
		t.Errorf("a chain that broke off at b was sent to a %d times of 4000", got)
	}
}

// The Finish has upstream, model and price. It omits the name of an anonymous
// upstream.
func TestOrigin(t *testing.T) {
	amount := func(s string) berth.Amount { a, _ := berth.ParseAmount(s); return a }
	tenth := amount("0.1")
	prices := Prices{Currency: "usd",
		Models: map[string]Price{"big-*": {Input: amount("1"), CachedInput: &tenth, Output: amount("10")},
			"big-free": {}}}
	usage := finished
	usage.Usage.InputTokenDetails.CachedTokens = 4
	reply := func(_ context.Context, _ *model.Request, yield func(model.Delta, error) bool) { yield(usage, nil) }
	for name, tt := range map[string]struct {
		model string
		cost  string
	}{"priced": {"big-1", "0.0000564"}, "free": {"big-free", "0"}, "unknown": {"small", ""}} {
		u := open(t, &notes{}, UpstreamOptions{Name: "a", Prices: prices}, reply)
		_, f, err := collect(t.Context(), group(t, Options{Primaries: []Target{{Upstream: u, Model: tt.model}}}),
			request())
		if err != nil || f.Origin != (model.Origin{Upstream: "a", Model: tt.model}) {
			t.Errorf("%s: got %+v, %v", name, f, err)
		}
		if got := f.Cost; (got == nil) != (tt.cost == "") || got != nil && (got.Value.String() != tt.cost ||
			got.Currency != "usd") {
			t.Errorf("%s: got cost %v, want %s", name, got, tt.cost)
		}
	}
	u := open(t, &notes{}, UpstreamOptions{Name: "a", Anonymous: true}, reply)
	if _, f, _ := collect(t.Context(), group(t, Options{Primaries: []Target{{Upstream: u}}}),
		request()); f.Origin != (model.Origin{}) || f.Cost != nil {
		t.Errorf("an anonymous upstream: got %+v", f)
	}
}

func TestRefusedOptions(t *testing.T) {
	u := open(t, &notes{}, UpstreamOptions{Name: "a"}, answers("a"))
	if _, err := New(Options{Fallbacks: []Target{{Upstream: u}}}); err == nil {
		t.Error("a group without primaries was accepted")
	}
	if _, err := New(Options{Primaries: []Target{{Upstream: u, Weight: -1}}}); err == nil {
		t.Error("a negative weight was accepted")
	}
	for name, opts := range map[string]UpstreamOptions{"no key": {},
		"a negative limit": {Keys: []Key{{}}, Limits: Limits{Concurrency: -1}},
		"a negative price": {Keys: []Key{{}}, Prices: Prices{Models: map[string]Price{"m": {Input: -1}}}}} {
		if _, err := NewUpstream(opts); err == nil {
			t.Errorf("%s: got an upstream, want an error", name)
		}
	}
}

// When the caller leaves, the error is its cause, and no other upstream is called.
func TestCancellation(t *testing.T) {
	for _, hedge := range []time.Duration{0, time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			n := &notes{}
			g := group(t, Options{Primaries: []Target{{Upstream: open(t, n, UpstreamOptions{Name: "a"}, hangs)}},
				Fallbacks: []Target{{Upstream: open(t, n, UpstreamOptions{Name: "b"}, hangs)}}, HedgeAfter: hedge})
			cause := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				time.Sleep(time.Second)
				cancel(cause)
			}()
			_, _, err := collect(ctx, g, request())
			want := 1
			if hedge > 0 {
				want = 2
			}
			if got := n.take(); !errors.Is(err, cause) || len(got) != want {
				t.Errorf("hedge %v: got %v, called %v", hedge, err, got)
			}
		})
	}
}
