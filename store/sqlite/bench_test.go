package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

var delta = []byte(
	`{"type":"response.output_text.delta","sequence_number":7,"item_id":"msg_0","output_index":0,"content_index":0,"delta":"word","logprobs":[]}`)

// BenchmarkAppendEvents appends one event at a time to each of several streams.
func BenchmarkAppendEvents(b *testing.B) {
	for _, synchronous := range []string{"normal", "full"} {
		for _, streams := range []int{1, 10, 100} {
			b.Run(fmt.Sprintf("%s/streams=%d", synchronous, streams), func(b *testing.B) {
				db, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "berth.db"),
					&sqlite.Options{Synchronous: synchronous})
				if err != nil {
					b.Fatal(err)
				}
				defer db.Close()
				for i := range streams {
					req := &berth.ResponseRequest{Model: "m"}
					r := &store.Response{Project: "p", Request: req, Body: berth.NewResponse(streamID(i), 1, req)}
					if err := db.CreateResponse(b.Context(), r, nil, lease()); err != nil {
						b.Fatal(err)
					}
				}
				b.ResetTimer()
				var wg sync.WaitGroup
				for i := range streams {
					wg.Go(func() { appendMany(b, db, streamID(i), b.N/streams+1) })
				}
				wg.Wait()
				b.ReportMetric(float64(streams*(b.N/streams+1))/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

func streamID(i int) berth.ResponseID { return berth.ResponseID(fmt.Sprintf("resp_%048d", i)) }

func appendMany(b *testing.B, db *sqlite.DB, id berth.ResponseID, n int) {
	for i := range n {
		ev := []store.Event{{SequenceNumber: int64(i), Type: berth.EventOutputTextDelta, Data: delta}}
		if err := db.AppendEvents(context.Background(), "p", id, "me", ev, nil); err != nil {
			b.Error(err)
			return
		}
	}
}

// BenchmarkRawInsert measures one row in a transaction of its own, for comparison.
func BenchmarkRawInsert(b *testing.B) {
	for _, synchronous := range []string{"NORMAL", "FULL"} {
		b.Run(synchronous, func(b *testing.B) {
			db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(),
				"raw.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous("+synchronous+")")
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			db.SetMaxOpenConns(1)
			if _, err := db.Exec(
				"CREATE TABLE events (response TEXT, n INTEGER, type TEXT, data BLOB, PRIMARY KEY (response, n)) WITHOUT ROWID"); err != nil {
				b.Fatal(err)
			}
			insert, err := db.Prepare("INSERT INTO events (response, n, type, data) VALUES (?, ?, ?, ?)")
			if err != nil {
				b.Fatal(err)
			}
			id := string(streamID(0))
			for i := 0; b.Loop(); i++ {
				if _, err := insert.Exec(id, i, "response.output_text.delta", delta); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFold appends an item's last event with the body. The input of one megabyte
// must not be rewritten.
func BenchmarkFold(b *testing.B) {
	for _, input := range []int{1 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("input=%d", input), func(b *testing.B) {
			db := open(b, filepath.Join(b.TempDir(), "berth.db"))
			defer db.Close()
			req := &berth.ResponseRequest{Model: "m"}
			r := &store.Response{Project: "p", Request: req, Body: berth.NewResponse("resp_1", 1, req),
				Input: []berth.Item{message(strings.Repeat("x", input))}}
			if err := db.CreateResponse(b.Context(), r, nil, lease()); err != nil {
				b.Fatal(err)
			}
			r.Body.Output = []berth.Item{message(strings.Repeat("word ", 200))}
			for i := int64(0); b.Loop(); i++ {
				ev := []store.Event{{SequenceNumber: i, Type: berth.EventOutputItemDone, Data: delta}}
				if err := db.AppendEvents(b.Context(), "p", "resp_1", "me", ev, r.Body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func message(text string) berth.Item {
	return berth.NewItem(berth.Message{Type: "message", Role: "user",
		Content: []berth.Content{{Type: "input_text", Text: text}}})
}

// BenchmarkChain reads a chain whose links have 400 bytes of text each.
func BenchmarkChain(b *testing.B) {
	for _, links := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("links=%d", links), func(b *testing.B) {
			db := open(b, filepath.Join(b.TempDir(), "berth.db"))
			defer db.Close()
			var previous berth.ResponseID
			for i := range links {
				req := &berth.ResponseRequest{Model: "m", PreviousResponseID: previous}
				in := message(strings.Repeat("word ", 40))
				r := &store.Response{Project: "p", Request: req, Input: []berth.Item{in},
					Body: berth.NewResponse(streamID(i), 1, req)}
				r.Body.Output = []berth.Item{in}
				if err := db.CreateResponse(b.Context(), r, nil, store.Lease{}); err != nil {
					b.Fatal(err)
				}
				previous = r.Body.ID
			}
			for b.Loop() {
				if got, err := db.Chain(b.Context(), "p", previous); err != nil || len(got) != links {
					b.Fatalf("%d links, %v", len(got), err)
				}
			}
		})
	}
}

// BenchmarkDelete deletes responses and waits until their keys are erased.
func BenchmarkDelete(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			db := open(b, filepath.Join(b.TempDir(), "berth.db"))
			defer db.Close()
			for i := range b.N {
				req := &berth.ResponseRequest{Model: "m"}
				r := &store.Response{Project: "p", Request: req, Body: berth.NewResponse(streamID(i), 1, req)}
				if err := db.CreateResponse(b.Context(), r, nil, lease()); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			var wg sync.WaitGroup
			for c := range clients {
				wg.Go(func() {
					for i := c; i < b.N; i += clients {
						if err := db.DeleteResponse(context.Background(), "p", streamID(i)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
