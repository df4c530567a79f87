package engine_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// An endless model continues until it is stopped.
type endless struct {
	*playedModel
	piece   func(n int) model.Delta
	stopped chan struct{}
}

func (e endless) Route(string) (model.Provider, string, error) { return e, "upstream-name", nil }

func (e endless) Stream(ctx context.Context, _ *model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		defer close(e.stopped)
		for n := 0; ctx.Err() == nil; n++ {
			if !yield(e.piece(n), nil) {
				return
			}
		}
		yield(nil, ctx.Err())
	}
}

// An endless answer ends as incomplete, whatever its deltas are, and its upstream is
// stopped.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1000)
	for name, piece := range map[string]func(int) model.Delta{
		"text":      func(int) model.Delta { return model.Text{Text: long} },
		"refusal":   func(int) model.Delta { return model.Refusal{Text: long} },
		"reasoning": func(int) model.Delta { return model.Thought{Text: long} },
		"arguments": func(int) model.Delta {
			return model.Call{ID: "call_1", Name: "shell", Arguments: `["` + long}
		},
		"empty pieces": func(int) model.Delta { return model.Text{} },
		"empty calls":  func(n int) model.Delta { return model.Call{Index: n, Name: "nope"} },
		"calls": func(n int) model.Delta {
			return model.Call{Index: n, Name: "shell", Arguments: `{"commands":["x"]}`}
		},
		"items": func(n int) model.Delta {
			return model.Item{Item: berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: "assistant",
				Content: []berth.Content{{Type: "output_text", Text: fmt.Sprint(n)}}})}
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			h := newHouse(t)
			h.stop()
			h.output = 8 << 10
			h.start()
			m := endless{h.model, piece, make(chan struct{})}
			h.engine.Models = m
			r := h.final(h.create(`{` + withShell + `,"input":"x"}`).ID)
			wantEnd(t, r, berth.StatusIncomplete, "max_output_tokens")
			<-m.stopped
			if n := len(asJSON(t, r.Output)); n > 128<<10 {
				t.Errorf("the output has %d bytes", n)
			}
			if n := len(h.containers.ran); n > 0 {
				t.Errorf("%d commands of an answer that was cut were run", n)
			}
		})
	}
}

// Output that was stored before a crash counts for the limit.
func TestEndlessAnswerAfterCrash(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{model.Text{Text: strings.Repeat("x", 5000)}, hang{}}, say(strings.Repeat("y", 5000)))
		h.stop()
		h.output = 8 << 10
		h.start()
		r := h.create(`{"model":"played","input":"x","background":true}`)
		h.waitFor(r.ID, berth.EventOutputTextDelta)
		h.stop()
		h.start()
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantEnd(t, h.final(r.ID), berth.StatusIncomplete, "max_output_tokens")
	})
}

// A response at its output limit can be cancelled with its next delta.
func TestCancelEndlessAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		said := make(chan struct{}, 1)
		m := endless{h.model, func(n int) model.Delta {
			if n == 15 {
				said <- struct{}{}
			}
			if n > 15 {
				return model.Text{Text: "x"}
			}
			return model.Text{Text: strings.Repeat("x", 1<<20-100)}
		}, make(chan struct{})}
		h.engine.Models = m
		r := h.create(`{"model":"played","input":"x","background":true}`)
		<-said
		got, err := h.engine.Cancel(t.Context(), caller, r.ID)
		if err != nil || got.Status != berth.StatusCancelled {
			t.Fatalf("got %v, %v", got, err)
		}
		<-m.stopped
	})
}

func BenchmarkCancelLongAnswer(b *testing.B) {
	for _, size := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("MiB=%d", size), func(b *testing.B) {
			e, _ := benchHouse(b)
			for b.Loop() {
				b.StopTimer()
				said := make(chan struct{}, 1)
				e.Models = endless{&playedModel{}, func(n int) model.Delta {
					if n == 16*size-1 {
						said <- struct{}{}
					}
					if n >= 16*size-1 {
						return model.Text{Text: "x"}
					}
					return model.Text{Text: strings.Repeat("x", 1<<16-32)}
				}, make(chan struct{})}
				r, err := e.Create(b.Context(), caller, &berth.ResponseRequest{Model: "instant", Background: true})
				if err != nil {
					b.Fatal(err)
				}
				<-said
				b.StartTimer()
				if _, err := e.Cancel(b.Context(), caller, r.ID); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
