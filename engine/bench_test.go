package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/standard"
)

// An instant upstream answers every turn immediately.
type instant struct{ *playedModel }

func (i instant) Route(string) (model.Provider, string, error) {
	m := &playedModel{turns: []turn{say("word")}}
	return m, "instant", nil
}

func benchHouse(b *testing.B) (*engine.Engine, *journal.Journal) {
	st, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "berth.db"), nil)
	if err != nil {
		b.Fatal(err)
	}
	j := journal.New(st)
	e := engine.New(engine.Options{Responses: st, Runs: st, Objects: st, Journal: j, Models: instant{&playedModel{}},
		Tools: tool.NewRegistry(standard.Kinds(standard.Options{})...), Files: fewFiles{}, Owner: "bench",
		Log: slog.New(slog.DiscardHandler)})
	b.Cleanup(func() {
		e.Close(context.Background())
		st.Close()
	})
	return e, j
}

// ask creates a response and returns its id and how long its first token took.
func ask(b *testing.B, e *engine.Engine, j *journal.Journal, change func(*berth.ResponseRequest)) (berth.ResponseID,
	time.Duration) {
	var req berth.ResponseRequest
	if err := json.Unmarshal([]byte(`{"model":"instant","input":"a question of some words"}`), &req); err != nil {
		b.Fatal(err)
	}
	change(&req)
	began := time.Now()
	r, err := e.Create(b.Context(), caller, &req)
	if err != nil {
		b.Fatal(err)
	}
	var first time.Duration
	for ev, err := range j.Follow(b.Context(), project, r.ID, -1) {
		if err != nil {
			b.Fatal(err)
		}
		if ev.Type == berth.EventOutputTextDelta && first == 0 {
			first = time.Since(began)
		}
	}
	return r.ID, first
}

// BenchmarkFirstToken is what Berth adds to an upstream that answers immediately:
// admission, two commits and the journal, without HTTP.
func BenchmarkFirstToken(b *testing.B) {
	e, j := benchHouse(b)
	var all []time.Duration
	for b.Loop() {
		_, first := ask(b, e, j, func(*berth.ResponseRequest) {})
		all = append(all, first)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkChain is the first token of a response at the end of a chain.
func BenchmarkChain(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("turn=%d", n), func(b *testing.B) {
			e, j := benchHouse(b)
			var previous berth.ResponseID
			next := func(r *berth.ResponseRequest) { r.PreviousResponseID = previous }
			for range n - 1 {
				previous, _ = ask(b, e, j, next)
			}
			var total time.Duration
			count := 0
			for b.Loop() {
				_, first := ask(b, e, j, next)
				total += first
				count++
			}
			b.ReportMetric(float64(total.Microseconds())/float64(count), "first-token-µs")
		})
	}
}

// BenchmarkWindow is the first token of a response at the end of a chain of 100,000
// tokens, where nothing is known of the model's window, and where old items must be
// left out of it.
func BenchmarkWindow(b *testing.B) {
	for _, window := range []int{0, 50_000} {
		b.Run(fmt.Sprintf("tokens=%d", window), func(b *testing.B) {
			e, j := benchHouse(b)
			e.Models = instant{&playedModel{window: window}}
			previous, _ := ask(b, e, j, func(r *berth.ResponseRequest) {
				r.Input = nil
				for i := range 200 {
					r.Input = append(r.Input, message(fmt.Sprintf("msg_%d", i), words(500)))
				}
				r.Truncation = "auto"
			})
			var total time.Duration
			count := 0
			for b.Loop() {
				_, first := ask(b, e, j, func(r *berth.ResponseRequest) {
					r.PreviousResponseID, r.Truncation = previous, "auto"
				})
				total += first
				count++
			}
			b.ReportMetric(float64(total.Microseconds())/float64(count), "first-token-µs")
		})
	}
}

// BenchmarkConversation is the first token of a response in a conversation of so
// many items: the second one there, and the first, which reads them all.
func BenchmarkConversation(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("items=%d", n), func(b *testing.B) {
			e, j := benchHouse(b)
			var all [2]time.Duration
			count := 0
			for b.Loop() {
				b.StopTimer()
				id := newBenchConversation(b, e, n)
				b.StartTimer()
				for i := range all {
					_, first := ask(b, e, j, func(r *berth.ResponseRequest) {
						r.Conversation = &berth.ResponseConversation{ID: id}
						r.Input = berth.Input{message(berth.NewID(berth.PrefixMessage), "a question of some words")}
					})
					all[i] += first
				}
				count++
			}
			b.ReportMetric(float64(all[0].Microseconds())/float64(count), "unread-µs")
			b.ReportMetric(float64(all[1].Microseconds())/float64(count), "first-token-µs")
		})
	}
}

func newBenchConversation(b *testing.B, e *engine.Engine, n int) berth.ConversationID {
	id := berth.ConversationID(berth.NewID(berth.PrefixConversation))
	items := make([]berth.Item, n)
	for i := range items {
		items[i] = message(berth.NewID(berth.PrefixMessage), "a question of some words")
	}
	conv := &store.Object{ObjectKey: store.ObjectKey{Kind: store.KindConversation, ID: string(id)}, Body: []byte(`{}`)}
	if err := e.Objects.CreateObjects(b.Context(), project, append([]*store.Object{conv}, engine.ConversationItems(id,
		items)...)...); err != nil {
		b.Fatal(err)
	}
	return id
}
