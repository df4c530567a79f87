package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A file of a message is opened once for each turn. The checks of the request, the
// compaction before a turn and a second attempt open it no more often.
func TestFilesAreOpenedOnce(t *testing.T) {
	t.Parallel()
	image := `{"role":"user","content":[{"type":"input_image","file_id":"file-cat"},{"type":"input_text","text":"See."}]}`
	asking := func(fields string) string { return fmt.Sprintf(`{"model":"played","input":[%s]%s}`, image, fields) }
	for _, test := range []struct {
		name, body string
		turns      []turn
		window     int
		want       int64
	}{
		{"plain", asking(""), []turn{say("A cat.")}, 0, 1},
		{"with a check of the window", asking(""), []turn{say("A cat.")}, 1100, 1},
		{"with truncation", asking(`,"truncation":"auto"`), []turn{say("A cat.")}, 1100, 1},
		{"with a second attempt", asking(""),
			[]turn{{model.WithRetryAfter(&berth.Error{Code: berth.CodeUpstream, Message: "down"}, time.Millisecond)},
				say("A cat.")}, 0, 1},
		{"with two turns", asking(`,"tools":[{"type":"shell","environment":{"type":"container_auto"}}]`),
			[]turn{shell("call_1", `{"commands":["ls"]}`), say("A cat.")}, 0, 2},
	} {
		runInBubble(t, test.name, func(t *testing.T) {
			h := newHouse(t, test.turns...)
			h.model.window = test.window
			h.final(h.create(test.body).ID)
			if n := h.files.opened.Load(); n != test.want {
				t.Errorf("the file was opened %d times, want %d", n, test.want)
			}
		})
	}
}

// A file in the chain is opened once for the response that continues it.
func TestFilesOfAChainAreOpenedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("A cat."), say("Still a cat."))
		first := h.final(
			h.create(`{"model":"played","input":[{"role":"user","content":[{"type":"input_image","file_id":"file-cat"}]}]}`).ID)
		h.files.opened.Store(0)
		h.model.window = 1100
		h.final(h.create(fmt.Sprintf(`{"model":"played","input":"And now?","previous_response_id":%q}`, first.ID)).ID)
		if n := h.files.opened.Load(); n != 1 {
			t.Errorf("the file was opened %d times, want 1", n)
		}
	})
}
