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
	"github.com/berth-run/berth/store/sqlite"
)

// An instant upstream answers every turn at once.
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
	e := engine.New(engine.Options{Responses: st, Runs: st, Journal: j, Models: instant{}, Files: fewFiles{}, Owner: "bench", Log: slog.New(slog.DiscardHandler)})
	b.Cleanup(func() {
		e.Close(context.Background())
		st.Close()
	})
	return e, j
}

// ask creates a response and returns its id and how long its first token took.
func ask(b *testing.B, e *engine.Engine, j *journal.Journal, previous berth.ResponseID) (berth.ResponseID, time.Duration) {
	var req berth.ResponseRequest
	if err := json.Unmarshal([]byte(`{"model":"instant","input":"a question of some words"}`), &req); err != nil {
		b.Fatal(err)
	}
	req.PreviousResponseID = previous
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

// BenchmarkFirstToken is what Berth adds to an upstream that answers at once:
// admission, two commits and the journal, without HTTP.
func BenchmarkFirstToken(b *testing.B) {
	e, j := benchHouse(b)
	var all []time.Duration
	for b.Loop() {
		_, first := ask(b, e, j, "")
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
			for range n - 1 {
				previous, _ = ask(b, e, j, previous)
			}
			var total time.Duration
			count := 0
			for b.Loop() {
				_, first := ask(b, e, j, previous)
				total += first
				count++
			}
			b.ReportMetric(float64(total.Microseconds())/float64(count), "first-token-µs")
		})
	}
}
