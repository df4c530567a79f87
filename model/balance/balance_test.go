package balance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A voice is a provider that does what it is told to. It notes who was asked.
type voice struct {
	name  string
	notes *notes
	say   func(ctx context.Context, req *model.Request, yield func(model.Delta, error) bool)
}

// notes are the names of the voices that were asked, in order.
type notes struct {
	mu    sync.Mutex
	asked []string
	reqs  []*model.Request
}

func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := n.asked
	n.asked, n.reqs = nil, nil
	return asked
}

func (v *voice) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		v.notes.mu.Lock()
		v.notes.asked = append(v.notes.asked, v.name)
		v.notes.reqs = append(v.notes.reqs, req)
		v.notes.mu.Unlock()
		v.say(ctx, req, yield)
	}
}

type saying = func(context.Context, *model.Request, func(model.Delta, error) bool)

// says answers with a text.
func says(text string) saying {
	return func(_ context.Context, _ *model.Request, yield func(model.Delta, error) bool) {
		_ = yield(model.Text{Text: text}, nil) && yield(finished, nil)
	}
}

var finished = model.Finish{Reason: model.FinishStop, Usage: berth.Usage{InputTokens: 10, OutputTokens: 5, TotalTokens: 15}}

// fails answers with an error, after some words.
func fails(err error, words ...string) saying {
	return func(_ context.Context, _ *model.Request, yield func(model.Delta, error) bool) {
		for _, w := range words {
			if !yield(model.Text{Text: w}, nil) {
				return
			}
		}
		yield(nil, err)
	}
}

// hangs says nothing until its asker leaves.
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

// open returns an upstream with a voice for each key.
func open(t *testing.T, n *notes, opts UpstreamOptions, voices ...saying) *Upstream {
	t.Helper()
	for i, say := range voices {
		name := opts.Name
		if len(voices) > 1 {
			name = fmt.Sprintf("%s/%d", opts.Name, i)
		}
		opts.Keys = append(opts.Keys, Key{Name: fmt.Sprintf("KEY_%d", i), Provider: &voice{name, n, say}})
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

// hear asks and returns the words, the end and the error.
func hear(ctx context.Context, p model.Provider, req *model.Request) (text string, finish *model.Finish, err error) {
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

func ask() *model.Request { return &model.Request{Model: "m"} }

// Before the first word a turn goes on to the next upstream, unless the client is
// to blame; after it, the error is told.
func TestFailover(t *testing.T) {
	wait := func(d time.Duration) error { return model.WithRetryAfter(limited, d) }
	tests := []struct {
		name  string
		first saying
		asked string
		text  string
		err   error
	}{
		{"it answers", says("hi"), "a", "hi", nil},
		{"it fails", fails(broken), "a b", "b", nil},
		{"it is asked too much", fails(limited), "a b", "b", nil},
		{"and says for how long", fails(wait(time.Hour)), "a b", "b", nil},
		{"it refuses the key", fails(keyless), "a b", "b", nil},
		{"it lacks the model", fails(missing), "a b", "b", nil},
		{"the request is wrong", fails(invalid), "a", "", invalid},
		{"the context is too long", fails(model.TooLong("")), "a", "", model.TooLong("")},
		{"it breaks off", fails(broken, "h"), "a", "h", broken},
		{"it ends without an end", func(context.Context, *model.Request, func(model.Delta, error) bool) {}, "a b", "b", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := &notes{}
			g := group(t, Options{Primaries: []Target{{Upstream: open(t, n, UpstreamOptions{Name: "a"}, tt.first)}},
				Fallbacks: []Target{{Upstream: open(t, n, UpstreamOptions{Name: "b"}, says("b"))}}})
			text, _, err := hear(t.Context(), g, ask())
			if got := strings.Join(n.take(), " "); got != tt.asked || text != tt.text || berth.ErrorCode(err) != berth.ErrorCode(tt.err) {
				t.Errorf("got %q, %v from %s, want %q, %v from %s", text, err, got, tt.text, tt.err, tt.asked)
			}
		})
	}
}

// A near Retry-After is waited for where there is nothing else to wait with.
func TestNearRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		count := 0
		u := open(t, n, UpstreamOptions{Name: "a"}, func(ctx context.Context, req *model.Request, yield func(model.Delta, error) bool) {
			if count++; count == 1 {
				yield(nil, model.WithRetryAfter(limited, time.Second))
				return
			}
			says("hi")(ctx, req, yield)
		})
		g := group(t, Options{Primaries: []Target{{Upstream: u}}, Fallbacks: []Target{{Upstream: open(t, n, UpstreamOptions{Name: "b"}, says("b"))}}})
		start := time.Now()
		if text, _, err := hear(t.Context(), g, ask()); text != "hi" || err != nil || time.Since(start) != time.Second {
			t.Errorf("got %q, %v after %v", text, err, time.Since(start))
		}
	})
}

// When all fail, the error that may pass is told, with the nearest time to try again.
func TestAllFail(t *testing.T) {
	after := func(d time.Duration) error { return model.WithRetryAfter(limited, d) }
	for name, tt := range map[string]struct {
		errs  []error
		code  berth.Code
		after time.Duration
	}{
		"one that may pass":  {[]error{keyless, broken, missing}, berth.CodeUpstream, 0},
		"the nearest":        {[]error{after(time.Hour), after(time.Minute), keyless}, berth.CodeRateLimited, time.Minute},
		"at any time":        {[]error{after(time.Hour), broken}, berth.CodeUpstream, 0},
		"none that may pass": {[]error{keyless, missing}, berth.CodeUnavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var targets []Target
			for i, err := range tt.errs {
				targets = append(targets, Target{Upstream: open(t, &notes{}, UpstreamOptions{Name: fmt.Sprint(i)}, fails(err))})
			}
			_, _, err := hear(t.Context(), group(t, Options{Primaries: targets[:1], Fallbacks: targets[1:]}), ask())
			if d, _ := model.RetryAfter(err); berth.ErrorCode(err) != tt.code || d != tt.after {
				t.Errorf("got %v after %v, want %s after %v", err, d, tt.code, tt.after)
			}
		})
	}
}

// Keys share the load; one that may not be asked rests until it may.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		first, second := says("x"), says("x")
		u := open(t, n, UpstreamOptions{Name: "a"}, func(ctx context.Context, r *model.Request, y func(model.Delta, error) bool) { first(ctx, r, y) },
			func(ctx context.Context, r *model.Request, y func(model.Delta, error) bool) { second(ctx, r, y) })
		g := group(t, Options{Primaries: []Target{{Upstream: u}}})
		want := func(what string, asked ...string) {
			t.Helper()
			if got := n.take(); !slices.Equal(got, asked) {
				t.Errorf("%s: asked with %v, want %v", what, got, asked)
			}
		}
		for range 4 {
			_, _, _ = hear(t.Context(), g, ask())
		}
		want("in turn", "a/0", "a/1", "a/0", "a/1")

		_, f, _ := hear(t.Context(), g, ask())
		for range 2 {
			req := ask()
			req.Prefer = f.Origin
			_, _, _ = hear(t.Context(), g, req)
		}
		want("the same for a chain", "a/0", "a/0", "a/0")

		first = fails(model.WithRetryAfter(limited, 5*time.Second))
		req := ask()
		req.Prefer = f.Origin
		if text, _, err := hear(t.Context(), g, req); text != "x" || err != nil {
			t.Errorf("got %q, %v", text, err)
		}
		want("the other, if one may not be asked", "a/0", "a/1")
		first = says("x")
		_, _, _ = hear(t.Context(), g, ask())
		want("it rests", "a/1")
		second = fails(model.WithRetryAfter(limited, time.Minute))
		_, _, err := hear(t.Context(), g, ask())
		if d, ok := model.RetryAfter(err); !ok || d > 5*time.Second || berth.ErrorCode(err) != berth.CodeRateLimited {
			t.Errorf("with none left: got %v after %v", err, d)
		}
		want("none is left", "a/1")
		time.Sleep(5 * time.Second)
		_, _, _ = hear(t.Context(), g, ask())
		want("it has rested", "a/0")

		time.Sleep(time.Minute)
		first, second = fails(keyless), says("x")
		if text, _, err := hear(t.Context(), g, req); text != "x" || err != nil {
			t.Errorf("with a key that is refused: got %q, %v", text, err)
		}
		first = says("x")
		_, _, _ = hear(t.Context(), g, req)
		want("one that is refused is set aside", "a/0", "a/1", "a/1")
		second = fails(keyless)
		if _, _, err := hear(t.Context(), g, ask()); err != nil {
			t.Errorf("got %v", err)
		}
		want("until there is no other", "a/1", "a/0")
	})
}

// The only key is asked with again, for somebody may have mended it.
func TestOnlyKeyRefused(t *testing.T) {
	n := &notes{}
	var log bytes.Buffer
	u := open(t, n, UpstreamOptions{Name: "a", Log: slog.New(slog.NewTextHandler(&log, nil))}, fails(keyless))
	g := group(t, Options{Primaries: []Target{{Upstream: u}}})
	for range 2 {
		if _, _, err := hear(t.Context(), g, ask()); berth.ErrorCode(err) != berth.CodeUnavailable {
			t.Errorf("got %v", err)
		}
	}
	if got := n.take(); len(got) != 2 {
		t.Errorf("asked %v", got)
	}
	if got := log.String(); strings.Count(got, "refuses its only key; continuing to use it") != 1 {
		t.Errorf("the log says %s", got)
	}
}

// TestOpenCircuit: the error names the upstream and when it is asked again.
func TestOpenCircuit(t *testing.T) {
	b := newBreaker(Breaker{}, "The upstream 'a'", slog.New(slog.DiscardHandler), func(error) bool { return true })
	b.till = time.Now().Add(8 * time.Second)
	if got := b.skipped().Error(); !strings.Contains(got, "The upstream 'a' has failed too often. Berth tries it again in 8 s.") {
		t.Errorf("got %q", got)
	}
}

// Primaries share the turns by weight; a chain stays where it is; a word decides
// instead of chance.
func TestWeights(t *testing.T) {
	n := &notes{}
	a, b := open(t, n, UpstreamOptions{Name: "a"}, says("x")), open(t, n, UpstreamOptions{Name: "b"}, says("x"))
	g := group(t, Options{Primaries: []Target{{Upstream: a, Weight: 3}, {Upstream: b}}})
	count := func(each func(i int) *model.Request) int {
		for i := range 4000 {
			_, _, _ = hear(t.Context(), g, each(i))
		}
		of := 0
		for _, name := range n.take() {
			if name == "a" {
				of++
			}
		}
		return of
	}
	if got := count(func(int) *model.Request { return ask() }); got < 2800 || got > 3200 {
		t.Errorf("by chance: got %d of 4000, want about 3000", got)
	}
	named := func(key string) *model.Request {
		req := ask()
		req.Hints.PromptCacheKey = key
		return req
	}
	if got := count(func(i int) *model.Request { return named(fmt.Sprint("user-", i)) }); got < 2800 || got > 3200 {
		t.Errorf("by a word: got %d of 4000, want about 3000", got)
	}
	if got := count(func(int) *model.Request { return named("one") }); got != 0 && got != 4000 {
		t.Errorf("by the same word: got %d of 4000", got)
	}
	req := ask()
	req.Prefer = model.Origin{Upstream: "b"}
	if got := count(func(int) *model.Request { return req }); got != 0 {
		t.Errorf("a chain that is at b was at a %d times", got)
	}
	req.Attempt = 1
	if got := count(func(int) *model.Request { return req }); got != 4000 {
		t.Errorf("a chain that broke off at b was asked at a %d times of 4000", got)
	}
}

// An upstream that fails is left alone, and tried by one turn when its time is over.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		say := fails(broken)
		u := open(t, n, UpstreamOptions{Name: "a", Breaker: Breaker{Failures: 3, Open: time.Minute}},
			func(ctx context.Context, r *model.Request, y func(model.Delta, error) bool) { say(ctx, r, y) })
		g := group(t, Options{Primaries: []Target{{Upstream: u}}, Fallbacks: []Target{{Upstream: open(t, n, UpstreamOptions{Name: "b"}, says("b"))}}})
		want := func(what, circuit string, asked ...string) {
			t.Helper()
			if got := n.take(); !slices.Equal(got, asked) || u.Status().Circuit != circuit {
				t.Errorf("%s: asked %v, circuit %s, want %v, %s", what, got, u.Status().Circuit, asked, circuit)
			}
		}
		for range 5 {
			_, _, _ = hear(t.Context(), g, ask())
		}
		want("after three failures", "open", "a", "b", "a", "b", "a", "b", "b", "b")
		lone := group(t, Options{Primaries: []Target{{Upstream: u}}})
		_, _, err := hear(t.Context(), lone, ask())
		if d, ok := model.RetryAfter(err); !ok || d != time.Minute || berth.ErrorCode(err) != berth.CodeUpstream {
			t.Errorf("with no other: got %v after %v", err, d)
		}
		want("with no other", "open")
		time.Sleep(time.Minute + 1)

		say = hangs
		ctx, cancel := context.WithCancel(t.Context())
		probe := make(chan error)
		go func() { _, _, err := hear(ctx, g, ask()); probe <- err }()
		synctest.Wait()
		_, _, _ = hear(t.Context(), g, ask())
		want("one is let through", "half-open", "a", "b")
		cancel()
		<-probe
		say = fails(broken)
		_, _, _ = hear(t.Context(), g, ask())
		want("who leaves tells nothing", "open", "a", "b")
		time.Sleep(time.Minute + 1)
		say = says("a")
		_, _, _ = hear(t.Context(), g, ask())
		want("it answers again", "closed", "a")

		say = fails(broken, "a word")
		for range 3 {
			_, _, _ = hear(t.Context(), g, ask())
		}
		want("what breaks off is a failure, between successes", "closed", "a", "a", "a")
		for range 20 {
			_, _, _ = hear(t.Context(), g, ask())
		}
		if u.Status().Circuit != "open" {
			t.Errorf("half of the turns broke off: the circuit is %s", u.Status().Circuit)
		}
	})
}

// What the client must mend is no failure of the upstream.
func TestBreakerIgnoresClients(t *testing.T) {
	u := open(t, &notes{}, UpstreamOptions{Name: "a", Breaker: Breaker{Failures: 1}}, fails(invalid))
	g := group(t, Options{Primaries: []Target{{Upstream: u}}})
	for range 3 {
		_, _, _ = hear(t.Context(), g, ask())
	}
	if got := u.Status().Circuit; got != "closed" {
		t.Errorf("the circuit is %s", got)
	}
}

// Only the upstream that encrypted reasoning gets it back.
func TestStamps(t *testing.T) {
	n := &notes{}
	reasoning := item(`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"secret.of.a"}`)
	sealed := item(`{"type":"reasoning","summary":[],"encrypted_content":"berth.vendor.1.abc"}`)
	a := open(t, n, UpstreamOptions{Name: "a"}, func(_ context.Context, _ *model.Request, yield func(model.Delta, error) bool) {
		_ = yield(model.Item{Item: reasoning}, nil) && yield(model.Item{Item: sealed}, nil) && yield(finished, nil)
	})
	b := open(t, n, UpstreamOptions{Name: "b"}, says("b"))
	g := group(t, Options{Primaries: []Target{{Upstream: a}}, Fallbacks: []Target{{Upstream: b}}})
	var kept []berth.Item
	for d := range g.Stream(t.Context(), ask()) {
		if it, ok := d.(model.Item); ok {
			kept = append(kept, it.Item)
		}
	}
	if len(kept) != 2 || encrypted(kept[0]) == encrypted(reasoning) || encrypted(kept[1]) != encrypted(sealed) {
		t.Fatalf("got %s", kept)
	}
	for _, tt := range []struct {
		at   *Upstream
		want string
	}{{a, "secret.of.a"}, {b, ""}} {
		n.take()
		req := ask()
		req.Items = slices.Clone(kept)
		_, _, _ = hear(t.Context(), group(t, Options{Primaries: []Target{{Upstream: tt.at}}}), req)
		got := n.reqs[0].Items
		if encrypted(got[0]) != tt.want || encrypted(got[1]) != encrypted(sealed) {
			t.Errorf("%s got %s", tt.at.opts.Name, got)
		}
		if diff := cmp.Diff(string(kept[0].Raw()), string(req.Items[0].Raw())); diff != "" {
			t.Errorf("the request was changed: %s", diff)
		}
	}
	// A client that carries its items itself goes back to where they come from.
	n.take()
	req := ask()
	req.Items = kept
	_, _, _ = hear(t.Context(), group(t, Options{Primaries: []Target{{Upstream: b, Weight: 1000}, {Upstream: a}}}), req)
	if got := n.take(); got[0] != "a" {
		t.Errorf("asked %v", got)
	}
}

func item(text string) berth.Item {
	var it berth.Item
	if err := it.UnmarshalJSON([]byte(text)); err != nil {
		panic(err)
	}
	return it
}

// Who answered, under which name of the model, and for how much, is told; but not
// of an upstream that has no name.
func TestOrigin(t *testing.T) {
	amount := func(s string) berth.Amount { a, _ := berth.ParseAmount(s); return a }
	tenth := amount("0.1")
	prices := Prices{Currency: "usd", Models: map[string]Price{"big-*": {Input: amount("1"), CachedInput: &tenth, Output: amount("10")}, "big-free": {}}}
	usage := finished
	usage.Usage.InputTokenDetails.CachedTokens = 4
	say := func(_ context.Context, _ *model.Request, yield func(model.Delta, error) bool) { yield(usage, nil) }
	for name, tt := range map[string]struct {
		model string
		cost  string
	}{"priced": {"big-1", "0.0000564"}, "for nothing": {"big-free", "0"}, "unknown": {"small", ""}} {
		u := open(t, &notes{}, UpstreamOptions{Name: "a", Prices: prices}, say)
		_, f, err := hear(t.Context(), group(t, Options{Primaries: []Target{{Upstream: u, Model: tt.model}}}), ask())
		if err != nil || f.Origin != (model.Origin{Upstream: "a", Model: tt.model}) {
			t.Errorf("%s: got %+v, %v", name, f, err)
		}
		if got := f.Cost; (got == nil) != (tt.cost == "") || got != nil && (got.Value.String() != tt.cost || got.Currency != "usd") {
			t.Errorf("%s: got cost %v, want %s", name, got, tt.cost)
		}
	}
	u := open(t, &notes{}, UpstreamOptions{Name: "a", Anonymous: true}, say)
	if _, f, _ := hear(t.Context(), group(t, Options{Primaries: []Target{{Upstream: u}}}), ask()); f.Origin != (model.Origin{}) || f.Cost != nil {
		t.Errorf("an anonymous upstream: got %+v", f)
	}
}

func TestRefusedOptions(t *testing.T) {
	u := open(t, &notes{}, UpstreamOptions{Name: "a"}, says("a"))
	if _, err := New(Options{Fallbacks: []Target{{Upstream: u}}}); err == nil {
		t.Error("a group without primaries was made")
	}
	if _, err := New(Options{Primaries: []Target{{Upstream: u, Weight: -1}}}); err == nil {
		t.Error("a negative weight was taken")
	}
	for name, opts := range map[string]UpstreamOptions{"no key": {}, "a negative limit": {Keys: []Key{{}}, Limits: Limits{Concurrency: -1}},
		"a negative price": {Keys: []Key{{}}, Prices: Prices{Models: map[string]Price{"m": {Input: -1}}}}} {
		if _, err := NewUpstream(opts); err == nil {
			t.Errorf("%s: an upstream was made", name)
		}
	}
}

// An asker who leaves is told why it left, and nobody else is asked.
func TestLeaving(t *testing.T) {
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
			_, _, err := hear(ctx, g, ask())
			want := 1
			if hedge > 0 {
				want = 2
			}
			if got := n.take(); !errors.Is(err, cause) || len(got) != want {
				t.Errorf("hedge %v: got %v, asked %v", hedge, err, got)
			}
		})
	}
}
