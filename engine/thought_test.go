package engine_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

func thinking(thought, answer string) turn {
	return turn{model.Thought{Text: thought}, model.Text{Text: answer}}
}

// A client may drop the content of reasoning, as OpenAI's has none: encrypted_content
// restores it.
func TestEncryptedReasoning(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, thinking("deep", "so"), say("on"))
		first := h.final(h.create(`{"model":"played","store":true,"include":["reasoning.encrypted_content"],"input":[` +
			user("a", 1) + `]}`).ID)
		var r berth.Reasoning
		decode(t, first.Output[0], &r)
		if r.EncryptedContent == "" || strings.Contains(r.EncryptedContent, "deep") {
			t.Errorf("got %s", first.Output[0].Raw())
		}
		for _, ev := range h.events(first.ID) {
			if ev.Type == berth.EventOutputItemAdded && ev.Item.Type() == berth.ItemReasoning &&
				!strings.Contains(string(ev.Item.Raw()), "encrypted_content") {
				t.Errorf("it opens as %s", ev.Item.Raw())
			}
		}
		carried, _ := json.Marshal(map[string]any{"id": r.ID, "type": "reasoning", "summary": []any{},
			"encrypted_content": r.EncryptedContent})
		h.final(h.create(`{"model":"played","input":[` + user("a", 1) + "," + string(carried) + "," +
			string(first.Output[1].Raw()) + "," + user("b", 1) + `]}`).ID)
		var seen berth.Reasoning
		decode(t, h.model.requests[1].Items[1], &seen)
		want := berth.Reasoning{ID: r.ID, Type: berth.ItemReasoning, Summary: []berth.Content{},
			Content: []berth.Content{{Type: "reasoning_text", Text: "deep"}}}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("the model sees (-want +got):\n%s", diff)
		}
	})
}

// Without "include" reasoning has no encrypted_content.
func TestPlainReasoning(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, thinking("deep", "so"))
		got := h.final(h.create(`{"model":"played","input":"x"}`).ID)
		var fields map[string]any
		decode(t, got.Output[0], &fields)
		if _, ok := fields["encrypted_content"]; ok {
			t.Errorf("got %v", fields)
		}
	})
}

// A provider's own encrypted_content passes both ways unchanged.
func TestProvidersReasoning(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		item := berth.NewItem(map[string]any{"id": "rs_1", "type": "reasoning", "summary": []any{},
			"encrypted_content": "gAAAAtheirs"})
		h := newHouse(t, turn{model.Item{Item: item}, model.Text{Text: "so"}}, say("on"))
		first := h.final(h.create(`{"model":"played","include":["reasoning.encrypted_content"],"input":"x"}`).ID)
		h.final(h.create(`{"model":"played","previous_response_id":"` + string(first.ID) + `","input":"y"}`).ID)
		for at, it := range map[string]berth.Item{"output": first.Output[0],
			"next turn": h.model.requests[1].Items[1]} {
			var r berth.Reasoning
			decode(t, it, &r)
			if r.EncryptedContent != "gAAAAtheirs" {
				t.Errorf("%s: got %s", at, it.Raw())
			}
		}
	})
}

// Sealed content that is forged or belongs to another project is refused.
func TestForeignReasoning(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, thinking("deep", "so"))
		first := h.final(h.create(`{"model":"played","include":["reasoning.encrypted_content"],"input":"x"}`).ID)
		var r berth.Reasoning
		decode(t, first.Output[0], &r)
		try := func(caller berth.Caller, content string) error {
			_, err := h.engine.Create(t.Context(), caller, &berth.ResponseRequest{Model: "played", Input: berth.Input{
				berth.NewItem(berth.Reasoning{ID: "rs_1", Type: berth.ItemReasoning, Summary: []berth.Content{},
					EncryptedContent: content})}})
			return err
		}
		for name, err := range map[string]error{
			"altered":         try(caller, r.EncryptedContent[:len(r.EncryptedContent)-2]+"xx"),
			"another project": try(berth.Caller{Project: "proj_other"}, r.EncryptedContent),
		} {
			if e, ok := errors.AsType[*berth.Error](err); !ok || e.Wire != "invalid_encrypted_content" ||
				e.Param != "input[0].encrypted_content" {
				t.Errorf("%s: got %v", name, err)
			}
		}
		if err := try(caller, "gAAAAtheirs"); err != nil {
			t.Errorf("a provider's: got %v", err)
		}
	})
}
