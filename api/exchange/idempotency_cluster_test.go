package exchange

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/idempotency"
)

// A pair is a cluster of two servers with one database, as each sees it.
type pair struct {
	cluster.Solo
	name   string
	shared *shared
}

type shared struct {
	mu     sync.Mutex
	locks  map[string]chan struct{}
	at     map[string]http.Handler
	dead   map[string]bool
	stored map[berth.ResponseID]bool
	sent   int // requests from one to the other
}

func (p pair) Self() string { return p.name }
func (p pair) Alone() bool  { return false }

func (p pair) Alive(_ context.Context, server string) (bool, error) {
	p.shared.mu.Lock()
	defer p.shared.mu.Unlock()
	return p.shared.at[server] != nil && !p.shared.dead[server], nil
}

func (p pair) Where(_ context.Context, o cluster.Object, _ cluster.Aim) (cluster.Place, error) {
	p.shared.mu.Lock()
	defer p.shared.mu.Unlock()
	return cluster.Place{Stored: p.shared.stored[o.Response]}, nil
}

func (p pair) Forward(w http.ResponseWriter, r *http.Request, caller *berth.Caller, server string) error {
	p.shared.mu.Lock()
	p.shared.sent++
	h := p.shared.at[server]
	p.shared.mu.Unlock()
	h.ServeHTTP(w, r.WithContext(Forwarded(r.Context(), caller)))
	return nil
}

func (p pair) Acquire(ctx context.Context, name string) (func(), error) {
	p.shared.mu.Lock()
	lock := p.shared.locks[name]
	if lock == nil {
		lock = make(chan struct{}, 1)
		p.shared.locks[name] = lock
	}
	p.shared.mu.Unlock()
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// newPair returns two servers with a route that does.
func newPair(t *testing.T, traits Traits, does func(server string) Handler) (a, b http.Handler, _ *shared) {
	db := database(t)
	s := &shared{locks: map[string]chan struct{}{}, at: map[string]http.Handler{}, dead: map[string]bool{},
		stored: map[berth.ResponseID]bool{}}
	for _, name := range []string{"a", "b"} {
		server := New(Options{Keys: &keyring{}, Repeats: idempotency.New(db), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Limits: Limits{MaxBody: 1 << 20}, Placement: pair{name: name, shared: s}})
		mux := http.NewServeMux()
		rt := Route{Method: "POST", Path: "/v1/things", Handle: does(name), Permission: berth.MayRun, Traits: ReadsQuery | traits}
		mux.HandleFunc(rt.Pattern(), server.Route(rt))
		s.at[name] = server.Handler(func(x *Exchange, r *http.Request) { mux.ServeHTTP(x, r) })
	}
	return s.at["a"], s.at["b"], s
}

// Of requests with the same key that reach several servers at the same time, one runs.
func TestIdempotencyOfSeveralServers(t *testing.T) {
	var mu sync.Mutex
	started, goOn, n := make(chan struct{}, 8), make(chan struct{}), 0
	a, b, _ := newPair(t, 0, func(string) Handler {
		return func(x *Exchange, _ *http.Request, _ berth.Caller) error {
			mu.Lock()
			n++
			mu.Unlock()
			started <- struct{}{}
			<-goOn
			return x.JSON(http.StatusOK, "done")
		}
	})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if w := post([]http.Handler{a, b}[i%2], "/v1/things", "k", asJSON, `{}`); w.Body.String() != `"done"` {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
	<-started
	close(goOn)
	all.Wait()
	if n != 1 {
		t.Errorf("the request ran %d times", n)
	}
}

// A response that only the memory of a server has is repeated there, until that server dies.
func TestIdempotencyOfUnstoredResponses(t *testing.T) {
	ran := map[string][]berth.ResponseID{}
	a, b, s := newPair(t, NamesResponse, func(server string) Handler {
		return func(x *Exchange, r *http.Request, c berth.Caller) error {
			body, err := x.ReadBody(r, 1<<20)
			if err != nil {
				return err
			}
			ran[server] = append(ran[server], c.Response)
			return x.JSON(http.StatusOK, string(body))
		}
	})
	for _, h := range []http.Handler{a, b, b} {
		if w := post(h, "/v1/things", "k", asJSON, `{"store":false}`); w.Code != http.StatusOK ||
			!strings.Contains(w.Body.String(), "store") {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
	}
	if id := ran["a"][0]; len(ran["a"]) != 3 || len(ran["b"]) != 0 ||
		fmt.Sprint(ran["a"]) != fmt.Sprint([]berth.ResponseID{id, id, id}) || s.sent != 2 {
		t.Errorf("got %v, %d forwarded", ran, s.sent)
	}
	if w := post(b, "/v1/things", "k", asJSON, `{"store":true}`); w.Code != http.StatusBadRequest {
		t.Errorf("another body: got %d %s", w.Code, w.Body)
	}
	// Every server can repeat one that is stored.
	s.stored[ran["a"][0]] = true
	post(b, "/v1/things", "k", asJSON, `{"store":false}`)
	if len(ran["b"]) != 1 || ran["b"][0] != ran["a"][0] {
		t.Errorf("stored: got %v", ran)
	}
	// If the server is dead, another one takes its place.
	delete(s.stored, ran["a"][0])
	s.dead["a"] = true
	post(b, "/v1/things", "k", asJSON, `{"store":false}`)
	delete(s.dead, "a")
	post(a, "/v1/things", "k", asJSON, `{"store":false}`)
	if len(ran["a"]) != 3 || len(ran["b"]) != 3 {
		t.Errorf("after the death of its server: got %v", ran)
	}
}

// A request that must run on another server is repeated there.
func TestIdempotencyFollowsForwarding(t *testing.T) {
	ran := map[string]int{}
	a, b, _ := newPair(t, NamesResponse, func(server string) Handler {
		return func(x *Exchange, r *http.Request, c berth.Caller) error {
			if _, err := x.ReadBody(r, 1<<20); err != nil {
				return err
			}
			if server == "a" {
				return cluster.Elsewhere("Container 'c'", "b")
			}
			ran[server]++
			return x.JSON(http.StatusOK, c.Response)
		}
	})
	first := post(a, "/v1/things", "k", asJSON, `{"store":false}`)
	for _, h := range []http.Handler{a, b} {
		if w := post(h, "/v1/things", "k", asJSON, `{"store":false}`); w.Code != http.StatusOK ||
			w.Body.String() != first.Body.String() {
			t.Errorf("got %d %s, want %s", w.Code, w.Body, first.Body)
		}
	}
	if ran["b"] != 3 {
		t.Errorf("got %v", ran)
	}
}
