package bash

import (
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/berth-run/berth/guest"
)

// A printer is a shell that prints what the test sends.
type printer struct {
	Handle
	events chan guest.ProcessEvent
}

func (p printer) Events() iter.Seq2[guest.ProcessEvent, error] {
	return func(yield func(guest.ProcessEvent, error) bool) {
		for ev := range p.events {
			if !yield(ev, nil) {
				return
			}
		}
	}
}

func newPrinter(limit int) (*session, chan guest.ProcessEvent) {
	events := make(chan guest.ProcessEvent)
	o := &session{handle: printer{events: events}, limit: limit, turn: make(chan struct{}, 1),
		done: make(chan struct{}), changed: make(chan struct{})}
	go o.follow()
	return o, events
}

// A text is found wherever the output was divided, the first one first, and what follows it stays.
func TestExpect(t *testing.T) {
	const output = "one\r\ntwo three\nfour"
	for at := range len(output) {
		o, events := newPrinter(1 << 10)
		go func() {
			events <- guest.ProcessEvent{Stdout: []byte(output[:at])}
			events <- guest.ProcessEvent{Stdout: []byte(output[at:])}
			close(events)
		}()
		for _, want := range [][2]string{{"one\n", "two"}, {" ", "three"}, {"\nfo", "u"}} {
			before, which, err := o.expect(t.Context(), []string{"u", "three", "two"})
			if err != nil || before != want[0] || which != want[1] {
				t.Fatalf("divided at %d: got %q, %q, %v, want %q", at, before, which, err, want)
			}
		}
		if _, _, err := o.expect(t.Context(), []string{"five"}); !errors.Is(err, ErrEnded) {
			t.Fatalf("divided at %d: got %v, want the end", at, err)
		}
	}
}

// Output without end is kept to a limit, and a text after it is found.
func TestExpectEndless(t *testing.T) {
	const limit = 64 << 10
	o, events := newPrinter(limit)
	go func() {
		for range 1000 {
			events <- guest.ProcessEvent{Stdout: []byte(strings.Repeat("y\n", 1000))}
		}
		events <- guest.ProcessEvent{Stdout: []byte("the e")}
		events <- guest.ProcessEvent{Stdout: []byte("nd")}
	}()
	before, _, err := o.expect(t.Context(), []string{"the end"})
	if err != nil || len(before) > 2*limit || !strings.HasSuffix(before, "y\n") {
		t.Errorf("got %d bytes, %v", len(before), err)
	}
	close(events)
}
