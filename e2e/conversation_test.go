package e2e

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

func userItem(text string) responses.ResponseInputItemUnionParam {
	return responses.ResponseInputItemParamOfMessage(text, responses.EasyInputMessageRoleUser)
}

// itemTypes lists a conversation, the oldest item first, two at a time.
func itemTypes(t *testing.T, c *openai.Client, id string) []string {
	t.Helper()
	types := []string{}
	page := c.Conversations.Items.ListAutoPaging(t.Context(), id,
		conversations.ItemListParams{Order: conversations.ItemListParamsOrderAsc, Limit: openai.Int(2)})
	for page.Next() {
		types = append(types, page.Current().Type)
	}
	if err := page.Err(); err != nil {
		t.Fatal(err)
	}
	return types
}

func wantStatus(t *testing.T, what string, err error, status int) {
	t.Helper()
	if apiErr, ok := errors.AsType[*openai.Error](err); !ok || apiErr.StatusCode != status {
		t.Errorf("%s: got %v, want status %d", what, err, status)
	}
}

// TestGoConversation calls every method with the official Go client.
func TestGoConversation(t *testing.T) {
	s := newServer(t)
	c, ctx := s.client(), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	conv, err := c.Conversations.New(ctx, conversations.ConversationNewParams{
		Items: []responses.ResponseInputItemUnionParam{userItem("Ahoy.")}, Metadata: shared.Metadata{"ship": "Vasa"}})
	must(err)
	got, err := c.Conversations.Get(ctx, conv.ID)
	must(err)
	if diff := cmp.Diff(conv.RawJSON(), got.RawJSON()); diff != "" {
		t.Errorf("Get (-New +Get):\n%s", diff)
	}
	got, err = c.Conversations.Update(ctx, conv.ID,
		conversations.ConversationUpdateParams{Metadata: shared.Metadata{"port": "Kiel"}})
	must(err)
	if diff := cmp.Diff(any(map[string]any{"port": "Kiel"}), got.Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	added, err := c.Conversations.Items.New(ctx, conv.ID,
		conversations.ItemNewParams{Items: []responses.ResponseInputItemUnionParam{userItem("And?"),
			userItem("Well?")}})
	must(err)
	item, err := c.Conversations.Items.Get(ctx, conv.ID, added.FirstID, conversations.ItemGetParams{})
	must(err)
	if text := item.AsMessage().Content[0].Text; text != "And?" {
		t.Errorf("the first item added says %q, want And?", text)
	}
	_, err = c.Conversations.Items.Delete(ctx, conv.ID, added.LastID)
	must(err)
	if diff := cmp.Diff([]string{"message", "message"}, itemTypes(t, c, conv.ID)); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
	_, err = c.Conversations.Items.Get(ctx, conv.ID, added.LastID, conversations.ItemGetParams{})
	wantStatus(t, "a deleted item", err, http.StatusNotFound)
	gone, err := c.Conversations.Delete(ctx, conv.ID)
	must(err)
	if !gone.Deleted || gone.ID != conv.ID {
		t.Errorf("Delete: got %s", gone.RawJSON())
	}
	_, err = c.Conversations.Get(ctx, conv.ID)
	wantStatus(t, "a deleted conversation", err, http.StatusNotFound)
}

// TestConversationCrash kills the server while a response writes a conversation.
// The next life ends the response, which has the conversation to itself until then
// and leaves its items there, once.
func TestConversationCrash(t *testing.T) {
	s := newServer(t)
	c, ctx := s.client(), t.Context()
	conv, err := c.Conversations.New(ctx, conversations.ConversationNewParams{})
	if err != nil {
		t.Fatal(err)
	}
	in := func(input string) responses.ResponseNewParams {
		task := shellTask(input)
		task.Conversation = responses.ResponseNewParamsConversationUnion{OfString: openai.String(conv.ID)}
		return task
	}
	task := in(fence("echo begun; until [ -e go ]; do sleep 0.05; done"))
	task.Background = openai.Bool(true)
	var id, container string
	stream := c.Responses.NewStreaming(ctx, task)
	for stream.Next() {
		if ev := stream.Current(); ev.Type == "response.created" {
			id, container = ev.Response.ID, ev.Response.Tools[0].AsShell().Environment.ContainerID
		} else if ev.Type == "response.shell_call_output_content.delta" {
			break
		}
	}
	s.kill()
	s.start()
	stream.Close()
	c = s.client()
	_, err = c.Responses.New(ctx, in("meanwhile"))
	wantStatus(t, "a response beside the one that is resumed", err, http.StatusConflict)
	if got := itemTypes(t, c, conv.ID); len(got) != 0 {
		t.Errorf("before the end the conversation is %q", got)
	}
	if _, err := c.Containers.Files.New(ctx, container,
		openai.ContainerFileNewParams{File: openai.File(strings.NewReader(""), "go", "text/plain")}); err != nil {
		t.Fatal(err)
	}
	s.waitUntil("the response has ended", func() bool {
		r, err := c.Responses.Get(ctx, id, responses.ResponseGetParams{})
		return err == nil && r.Status == responses.ResponseStatusCompleted
	})
	s.kill()
	s.start()
	c = s.client()
	want := []string{"message", "shell_call", "shell_call_output", "message"}
	if diff := cmp.Diff(want, itemTypes(t, c, conv.ID)); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
	next, err := c.Responses.New(ctx, in(fence("ls")))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"go\n"}, stdouts(next)); diff != "" {
		t.Errorf("in the conversation's container (-want +got):\n%s", diff)
	}
}
