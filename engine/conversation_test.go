package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
)

const inConversation = `"model":"played","conversation":"conv_1"`

// newConversation makes conv_1 with one message.
func (h *house) newConversation(p berth.ProjectID) {
	h.t.Helper()
	conv := &store.Object{ObjectKey: store.ObjectKey{Kind: store.KindConversation, ID: "conv_1"}, CreatedAt: 1,
		Body: []byte(`{}`)}
	h.add(p, conv)
	h.add(p, engine.ConversationItems("conv_1", []berth.Item{message("msg_0", "Welcome.")})...)
}

func (h *house) add(p berth.ProjectID, objects ...*store.Object) {
	h.t.Helper()
	if err := h.store.CreateObjects(h.t.Context(), p, objects...); err != nil {
		h.t.Fatal(err)
	}
}

func message(id, text string) berth.Item {
	return berth.NewItem(berth.Message{ID: id, Type: berth.ItemMessage, Role: "user", Status: berth.StatusCompleted,
		Content: []berth.Content{{Type: "input_text", Text: text}}})
}

// says returns a request in the conversation with one message.
func says(text, more string) string {
	return fmt.Sprintf(
		`{%s,"input":[{"type":"message","id":"msg_%s","role":"user","status":"completed","content":[{"type":"input_text","text":%q}]}]%s}`,
		inConversation, strings.ReplaceAll(text, " ", "_"), text, more)
}

// held returns the items of conv_1 in short.
func (h *house) held() []string {
	h.t.Helper()
	objects, _, err := h.store.ListObjects(h.t.Context(), project, store.KindConversationItem, "conv_1",
		store.Page{Limit: 10_000, Ascending: true})
	if err != nil {
		h.t.Fatal(err)
	}
	items := make([]berth.Item, len(objects))
	for i, o := range objects {
		if err := items[i].UnmarshalJSON(o.Body); err != nil {
			h.t.Fatal(err)
		}
		if items[i].ID() != o.ID {
			h.t.Errorf("item %s has the key %s", items[i].ID(), o.ID)
		}
	}
	return texts(h.t, items)
}

// texts is an outline without types.
func texts(t *testing.T, items []berth.Item) []string {
	t.Helper()
	lines := outline(t, items)
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "message completed ")
	}
	return lines
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func wantError(t *testing.T, what string, err error, code berth.Code, wire string) {
	t.Helper()
	e, ok := errors.AsType[*berth.Error](err)
	if !ok || e.Code != code || e.Wire != wire {
		t.Errorf("%s: got %v, want %s %s", what, err, code, wire)
	}
}

// Responses continue a conversation, add their items when they end, and share its
// container.
func TestConversation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, shell("call_1", `{"commands":["make"]}`), say("Made."), say("Indeed."))
		h.newConversation(project)
		first := h.final(h.create(strings.Replace(says("make it", ""), `"model":"played"`, withShell, 1)).ID)
		if first.Conversation == nil || first.Conversation.ID != "conv_1" {
			t.Errorf("the response shows conversation %v", first.Conversation)
		}
		afterFirst := []string{"Welcome.", "make it", "shell_call completed make",
			"shell_call_output completed [make ran exit 0]", "Made."}
		wantLines(t, "after the first response", h.held(), afterFirst...)
		h.add(project, engine.ConversationItems("conv_1", []berth.Item{message("msg_note", "A note.")})...)
		second := h.final(h.create(strings.Replace(says("and so", ""), `"model":"played"`, withShell, 1)).ID)
		wantLines(t, "after the second response", h.held(), append(afterFirst, "A note.", "and so", "Indeed.")...)
		if got := texts(t, h.model.requests[2].Items); len(got) != 7 || got[0] != "Welcome." || got[5] != "A note." ||
			got[6] != "and so" {
			t.Errorf("the model saw %q", got)
		}
		if a, b := asJSON(t, first.Tools), asJSON(t, second.Tools); a != b || !strings.Contains(a, "cntr_1") {
			t.Errorf("the second response has the tools %s, want the container of the first", b)
		}
		wantError(t, "an item again", h.refused(says("and so", "")), berth.CodeInvalid, "")
		wantError(t, "one item twice",
			h.refused(`{"model":"played","input":[{"type":"message","id":"m","role":"user","content":"a"},{"type":"message","id":"m","role":"user","content":"b"}]}`),
			berth.CodeInvalid, "")
	})
}

func (h *house) refused(body string) error {
	h.t.Helper()
	_, err := h.tryCreate(h.t.Context(), body)
	return err
}

// Of several concurrent responses, one writes the conversation.
func TestConversationLocked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		h.model.gate = make(chan struct{})
		h.newConversation(project)
		for round := range 5 {
			var all sync.WaitGroup
			made := make(chan berth.ResponseID, 8)
			for i := range 8 {
				all.Go(func() {
					r, err := h.tryCreate(t.Context(), says(fmt.Sprintf("%d %d", round, i), `,"background":true`))
					if err == nil {
						made <- r.ID
					} else {
						wantError(t, "a response beside another", err, berth.CodeConflict, "conversation_locked")
					}
				})
			}
			all.Wait()
			if len(made) != 1 {
				t.Fatalf("%d responses were made at once, want 1", len(made))
			}
			h.model.gate <- struct{}{}
			h.final(<-made)
			if got := len(h.held()); got != 2+round {
				t.Fatalf("after %d responses: %d items, want %d", round+1, got, 2+round)
			}
		}
	})
}

// Failed and cancelled responses add no items, incomplete ones do. Each releases the
// conversation.
func TestConversationAfterFailure(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{&berth.Error{Code: berth.CodeInvalid, Message: "no"}}, turn{hang{}},
			turn{model.Text{Text: "Half of"}, model.Finish{Reason: model.FinishLength}}, say("fine"))
		h.newConversation(project)
		if got := h.final(h.create(says("fails", "")).ID); got.Status != berth.StatusFailed {
			t.Fatalf("got %s, want failed", got.Status)
		}
		r := h.create(says("hangs", `,"background":true`))
		h.waitCalled(2)
		if _, err := h.engine.Cancel(t.Context(), caller, r.ID); err != nil {
			t.Fatal(err)
		}
		wantLines(t, "after failure and cancellation", h.held(), "Welcome.")
		h.final(h.create(says("stops", "")).ID)
		wantLines(t, "after an incomplete response", h.held(), "Welcome.", "stops", "message incomplete Half of")
		h.final(h.create(says("ends", `,"store":false`)).ID)
		wantLines(t, "after one that is not stored", h.held(), "Welcome.", "stops", "message incomplete Half of",
			"ends", "fine")
	})
}

// A resumed run still holds its conversation, and sees the items that it had when the
// response was created.
func TestConversationResumed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{hang{}}, say("Done."), say("Next."))
		h.newConversation(project)
		r := h.create(says("begin", `,"background":true`))
		h.waitCalled(1)
		late := engine.ConversationItems("conv_1", []berth.Item{message("msg_late", "Too late.")})
		late[0].CreatedAt = time.Now().Unix() + 60
		h.add(project, late...)
		h.stop()
		h.model.gate = make(chan struct{})
		h.start()
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantError(t, "beside a resumed run", h.refused(says("meanwhile", "")), berth.CodeConflict,
			"conversation_locked")
		h.model.gate <- struct{}{}
		h.final(r.ID)
		wantLines(t, "seen by the resumed run", texts(t, h.model.requests[1].Items), "Welcome.", "begin")
		wantLines(t, "the conversation", h.held(), "Welcome.", "Too late.", "begin", "Done.")
		close(h.model.gate)
		h.final(h.create(says("go on", "")).ID)
		wantLines(t, "seen by the next", texts(t, h.model.requests[2].Items), "Welcome.", "Too late.", "begin", "Done.",
			"go on")
	})
}

// A compacted conversation continues from the compaction. The trigger is not stored as an
// item.
func TestConversationCompacted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("They said welcome."), say("Indeed."))
		h.newConversation(project)
		h.final(h.create(`{` + inConversation + `,"input":[{"type":"compaction_trigger","id":"item_1"}]}`).ID)
		wantLines(t, "the conversation", h.held(), "Welcome.", "compaction ")
		h.final(h.create(says("and so", "")).ID)
		if got := texts(t, h.model.requests[1].Items); len(got) != 3 || !strings.Contains(got[1],
			"They said welcome.") || got[2] != "and so" {
			t.Errorf("the model saw %q", got)
		}
	})
}

// A dyingStore fails when a response is to end, as a server that is killed then.
type dyingStore struct {
	store.Responses
	saved, died chan struct{} // saved receives a value for each append before the last
}

var errKilled = errors.New("killed")

func (s dyingStore) AppendEvents(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string,
	events []store.Event, body *berth.Response, also ...*store.Object) error {
	if body != nil && body.Status.Final() {
		select {
		case <-s.died:
		default:
			close(s.died)
		}
		return errKilled
	}
	err := s.Responses.AppendEvents(ctx, p, id, owner, events, body, also...)
	select {
	case s.saved <- struct{}{}:
	default: // the test has seen enough
	}
	return err
}

// A server that dies before the end of a response has added no items to the conversation.
// After a restart the response ends and adds its items once.
func TestConversationKilled(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		saved, died := make(chan struct{}, 1), make(chan struct{})
		h := newHouse(t, append(say("Lost."), until(func() { <-saved })), say("Kept."))
		h.stop()
		h.startOn(dyingStore{h.store, saved, died})
		h.newConversation(project)
		r := h.create(says("ask", `,"background":true`))
		<-died
		h.stop()
		wantLines(t, "after the death", h.held(), "Welcome.")
		h.start()
		wantError(t, "before the run is resumed", h.refused(says("early", "")), berth.CodeConflict,
			"conversation_locked")
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.final(r.ID)
		wantLines(t, "after the restart", h.held(), "Welcome.", "ask", "message incomplete Lost.", "Kept.")
	})
}

// A response that is not stored ends with its server, and so does its hold.
func TestConversationKilledNotStored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{hang{}}, say("Ahoy."))
		h.newConversation(project)
		h.create(says("passing", `,"store":false`))
		h.waitCalled(1)
		h.stop()
		h.start()
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.final(h.create(says("ask", "")).ID)
		wantLines(t, "the conversation", h.held(), "Welcome.", "ask", "Ahoy.")
	})
}

// A response that continues one of a conversation by its id sees the items before that
// one, and no later items, with and without the cache.
func TestContinueOutOfConversation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("One."), say("Two."), say("Branch."), say("Twig."), say("Leaf."))
		h.newConversation(project)
		h.final(h.create(says("first", "")).ID)
		second := h.final(h.create(says("second", "")).ID)
		late := engine.ConversationItems("conv_1", []berth.Item{message("msg_late", "Too late.")})
		h.add(project, late...)
		branch := h.final(h.create(`{"model":"played","input":"branch","previous_response_id":"` + string(second.ID) +
			`"}`).ID)
		want := []string{"Welcome.", "first", "One.", "second", "Two."}
		if got := texts(t, h.model.requests[2].Items); len(got) != 6 || !cmp.Equal(got[:5], want) {
			t.Errorf("the branch saw %q, want %q and its own", got, want)
		}
		if branch.Conversation != nil {
			t.Error("the branch is part of the conversation")
		}
		h.stop()
		h.start()
		twig := `{"model":"played","input":"twig","previous_response_id":"` + string(branch.ID) + `"}`
		h.final(h.create(twig).ID)
		if got := texts(t, h.model.requests[3].Items); len(got) != 8 || !cmp.Equal(got[:5], want) {
			t.Errorf("the twig saw %q, want %q, the branch and its own", got, want)
		}
		if err := h.engine.DeleteConversation(t.Context(), caller, "conv_1"); err != nil {
			t.Fatal(err)
		}
		h.final(h.create(twig).ID)
		if got := texts(t, h.model.requests[4].Items); len(got) != 5 || got[0] != "second" {
			t.Errorf("after the conversation was deleted, the twig saw %q", got)
		}
	})
}

// The model does not see deleted items of a conversation. A response adds nothing to a
// deleted conversation.
func TestConversationDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("One."), say("Two."), say("Three."))
		h.newConversation(project)
		h.final(h.create(says("my secret", "")).ID)
		if err := h.engine.DeleteConversationItem(t.Context(), caller, "conv_1", "msg_my_secret"); err != nil {
			t.Fatal(err)
		}
		h.final(h.create(says("next", "")).ID)
		wantLines(t, "seen by the model", texts(t, h.model.requests[1].Items), "Welcome.", "One.", "next")

		other := berth.Caller{Project: "proj_other"}
		for what, err := range map[string]error{
			"another project's item": h.engine.DeleteConversationItem(t.Context(), other, "conv_1", "msg_0"),
			"another project's":      h.engine.DeleteConversation(t.Context(), other, "conv_1"),
			"an unknown item":        h.engine.DeleteConversationItem(t.Context(), caller, "conv_1", "msg_none"),
		} {
			if !errors.Is(err, store.ErrNotFound) {
				t.Errorf("deleting %s: got %v, want %v", what, err, store.ErrNotFound)
			}
		}
		h.model.gate = make(chan struct{})
		r := h.create(says("too late", `,"background":true`))
		if err := h.engine.DeleteConversation(t.Context(), caller, "conv_1"); err != nil {
			t.Fatal(err)
		}
		h.model.gate <- struct{}{}
		if got := h.final(r.ID); got.Status != berth.StatusCompleted {
			t.Errorf("the response in the deleted conversation is %s", got.Status)
		}
		holds, _, err := h.store.ListObjects(t.Context(), project, store.KindConversationHold, "conv_1",
			store.Page{Limit: 1})
		if got := h.held(); len(got) != 0 || len(holds) != 0 || err != nil {
			t.Errorf("left are the items %q and holds %v, %v", got, holds, err)
		}
		wantError(t, "a deleted conversation", h.refused(says("again", "")), berth.CodeNotFound, "")
	})
}

// A conversation of another project is not found.
func TestConversationOfAnother(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		h.newConversation("proj_other")
		for _, body := range []string{says("x", ""), strings.Replace(says("x", ""), "conv_1", "conv_2", 1)} {
			err := h.refused(body)
			wantError(t, body, err, berth.CodeNotFound, "")
			if !strings.Contains(err.Error(), "Conversation with id 'conv_") {
				t.Errorf("got %v", err)
			}
		}
	})
}
