package storetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

var delta = []byte(
	`{"type":"response.output_text.delta","sequence_number":7,"item_id":"msg_0","output_index":0,"content_index":0,"delta":"word","logprobs":[]}`)

// Bench measures what requests do most. open returns an empty store and closes it with the benchmark.
func Bench(b *testing.B, open func(b *testing.B) store.Store) {
	for _, streams := range []int{1, 16, 100} {
		b.Run(fmt.Sprintf("append/streams=%d", streams), func(b *testing.B) { benchAppend(b, open(b), streams) })
	}
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprintf("turn/clients=%d", clients), func(b *testing.B) { benchTurn(b, open(b), clients) })
	}
	for _, input := range []int{1 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("fold/input=%d", input), func(b *testing.B) { benchFold(b, open(b), input) })
	}
	for _, links := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("chain/links=%d", links), func(b *testing.B) { benchChain(b, open(b), links) })
	}
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprintf("delete/clients=%d", clients), func(b *testing.B) { benchDelete(b, open(b), clients) })
	}
	b.Run("get", func(b *testing.B) { benchGet(b, open(b)) })
	b.Run("objects", func(b *testing.B) { benchObjects(b, open(b)) })
}

func streamID(i int) berth.ResponseID { return berth.ResponseID(fmt.Sprintf("resp_%048d", i)) }

// benchResponse creates a response without events.
func benchResponse(b *testing.B, s store.Store, id berth.ResponseID, previous berth.ResponseID,
	input ...berth.Item) *store.Response {
	req := &berth.ResponseRequest{Model: "m", PreviousResponseID: previous}
	r := &store.Response{Project: "p", Request: req, Input: input, Body: berth.NewResponse(id, 1, req)}
	if err := s.CreateResponse(context.Background(), r, nil, store.Lease{Owner: "me", Until: far}); err != nil {
		b.Fatal(err)
	}
	return r
}

// each divides b.N among clients.
func each(b *testing.B, clients int, do func(i int) error) {
	b.ResetTimer()
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for i := c; i < b.N; i += clients {
				if err := do(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// benchAppend appends one event at a time to each of several streams.
func benchAppend(b *testing.B, s store.Store, streams int) {
	for i := range streams {
		benchResponse(b, s, streamID(i), "")
	}
	each(b, streams, func(i int) error {
		ev := []store.Event{{SequenceNumber: int64(i / streams), Type: berth.EventOutputTextDelta, Data: delta}}
		return s.AppendEvents(context.Background(), "p", streamID(i%streams), "me", ev, nil)
	})
}

// benchTurn stores whole responses: created with an event, ended with another.
func benchTurn(b *testing.B, s store.Store, clients int) {
	in, out := item(strings.Repeat("word ", 40)), item(strings.Repeat("word ", 40))
	each(b, clients, func(i int) error {
		req := &berth.ResponseRequest{Model: "m"}
		r := &store.Response{Project: "p", Request: req, Input: []berth.Item{in},
			Body: berth.NewResponse(streamID(i), 1, req)}
		err := s.CreateResponse(context.Background(), r, []store.Event{{Type: "t", Data: delta}},
			store.Lease{Owner: "me", Until: far})
		if err != nil {
			return err
		}
		r.Body.Status, r.Body.Output = berth.StatusCompleted, []berth.Item{out}
		return s.AppendEvents(context.Background(), "p", r.Body.ID, "me",
			[]store.Event{{SequenceNumber: 1, Type: "t", Data: delta}}, r.Body)
	})
}

// benchFold appends an item's last event with the body. The input must not be rewritten.
func benchFold(b *testing.B, s store.Store, input int) {
	r := benchResponse(b, s, "resp_1", "", item(strings.Repeat("x", input)))
	r.Body.Output = []berth.Item{item(strings.Repeat("word ", 200))}
	for i := int64(0); b.Loop(); i++ {
		ev := []store.Event{{SequenceNumber: i, Type: berth.EventOutputItemDone, Data: delta}}
		if err := s.AppendEvents(context.Background(), "p", "resp_1", "me", ev, r.Body); err != nil {
			b.Fatal(err)
		}
	}
}

// benchChain reads a chain whose links have 400 bytes of text each.
func benchChain(b *testing.B, s store.Store, links int) {
	var previous berth.ResponseID
	for i := range links {
		previous = benchResponse(b, s, streamID(i), previous, item(strings.Repeat("word ", 80))).Body.ID
	}
	for b.Loop() {
		if got, err := s.Chain(context.Background(), "p", previous); err != nil || len(got) != links {
			b.Fatalf("%d links, %v", len(got), err)
		}
	}
}

// benchDelete deletes responses and waits until their keys are erased.
func benchDelete(b *testing.B, s store.Store, clients int) {
	for i := range b.N {
		benchResponse(b, s, streamID(i), "")
	}
	each(b, clients, func(i int) error { return s.DeleteResponse(context.Background(), "p", streamID(i)) })
}

// benchGet reads a response.
func benchGet(b *testing.B, s store.Store) {
	benchResponse(b, s, "resp_1", "", item(strings.Repeat("word ", 80)))
	for b.Loop() {
		if _, err := s.GetResponse(context.Background(), "p", "resp_1"); err != nil {
			b.Fatal(err)
		}
	}
}

// benchObjects reads pages of 20 objects.
func benchObjects(b *testing.B, s store.Store) {
	for i := range 100 {
		note := object("note", "", fmt.Sprintf("note_%d", i))
		if err := s.CreateObjects(context.Background(), "p", note); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		list, more, err := s.ListObjects(context.Background(), "p", "note", "", store.Page{Limit: 20})
		if err != nil || len(list) != 20 || !more {
			b.Fatalf("%d objects, more %v, %v", len(list), more, err)
		}
	}
}
