package api_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// userSays is an item, a message of the user.
func userSays(text string) string { return fmt.Sprintf(`{"role":"user","content":%q}`, text) }

func (h *house) newConversation(items ...string) string {
	h.t.Helper()
	return h.call(200, "POST", "/v1/conversations", `{"items":[`+strings.Join(items, ",")+`]}`).id()
}

// listed returns the texts of a conversation's items, the oldest first.
func (h *house) listed(conv string) []string {
	h.t.Helper()
	texts := []string{}
	for _, it := range h.call(200, "GET", "/v1/conversations/"+conv+"/items?order=asc&limit=100", nil)["data"].([]any) {
		text, _ := object(it.(map[string]any)).at("content", 0, "text").(string)
		texts = append(texts, text)
	}
	return texts
}

func (h *house) wantError(status int, method, path, body, message, param, code string) {
	h.t.Helper()
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	want := object{"error": map[string]any{"message": message, "type": "invalid_request_error", "param": orNull(param),
		"code": orNull(code)}}
	var in any
	if body != "" {
		in = body
	}
	if diff := cmp.Diff(want, h.call(status, method, path, in)); diff != "" {
		h.t.Errorf("%s %s %s (-want +got):\n%s", method, path, body, diff)
	}
}

func TestConversation(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	conv := h.call(200, "POST", "/v1/conversations", `{"metadata":{"ship":"Vasa"},"items":[`+userSays("Ahoy.")+`]}`)
	path := "/v1/conversations/" + conv.id()
	if !strings.HasPrefix(conv.id(), "conv_") || conv["object"] != "conversation" ||
		conv.at("metadata", "ship") != "Vasa" || conv["created_at"] == nil || len(conv) != 4 {
		t.Errorf("created: %v", conv)
	}
	if diff := cmp.Diff(conv, h.call(200, "GET", path, nil)); diff != "" {
		t.Errorf("GET (-POST +GET):\n%s", diff)
	}
	conv["metadata"] = map[string]any{"port": "Kiel"}
	if diff := cmp.Diff(conv, h.call(200, "POST", path, `{"metadata":{"port":"Kiel"}}`)); diff != "" {
		t.Errorf("update (-want +got):\n%s", diff)
	}
	conv["metadata"] = map[string]any{}
	h.call(200, "POST", path, `{"metadata":null}`)
	if diff := cmp.Diff(conv, h.call(200, "GET", path, nil)); diff != "" {
		t.Errorf("updated with null (-want +got):\n%s", diff)
	}

	added := h.call(200, "POST", path+"/items?include=message.output_text.logprobs",
		`{"items":[{"role":"assistant","id":"msg_mine","content":"Yes?"},`+userSays("Nothing.")+`]}`)
	if added.at("data", 0, "id") != "msg_mine" || added["first_id"] != "msg_mine" ||
		added["last_id"] != added.at("data", 1, "id") || added["has_more"] != false {
		t.Errorf("added: %v", added)
	}
	want := map[string]any{"id": "msg_mine", "type": "message", "role": "assistant", "status": "completed",
		"content": []any{map[string]any{"type": "output_text", "text": "Yes?", "annotations": []any{},
			"logprobs": []any{}}}}
	if diff := cmp.Diff(object(want), h.call(200, "GET", path+"/items/msg_mine", nil)); diff != "" {
		t.Errorf("an item (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Ahoy.", "Yes?", "Nothing."}, h.listed(conv.id())); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
	page := h.call(200, "GET", path+"/items?limit=1&after=msg_mine", nil)
	if page.at("data", 0, "content", 0, "text") != "Ahoy." || page["has_more"] != false {
		t.Errorf("the page after msg_mine, newest first: %v", page)
	}
	if diff := cmp.Diff(conv, h.call(200, "DELETE", path+"/items/msg_mine", nil)); diff != "" {
		t.Errorf("deleting an item (-want the conversation +got):\n%s", diff)
	}
	h.wantError(404, "GET", path+"/items/msg_mine", "", "Item with id 'msg_mine' not found in conversation.", "", "")
	h.wantError(404, "DELETE", path+"/items/msg_mine", "", "Item with id 'msg_mine' not found in conversation.", "", "")
	if got := h.call(200, "DELETE", path, nil); !cmp.Equal(got, object{"id": conv.id(),
		"object": "conversation.deleted", "deleted": true}) {
		t.Errorf("DELETE: got %v", got)
	}
	if got := h.call(200, "POST", "/v1/conversations", nil); got.id() == "" || len(h.listed(got.id())) != 0 {
		t.Errorf("created without a body: %v", got)
	}
}

func TestListConversations(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	var made []string
	for range 3 {
		made = append(made, h.call(200, "POST", "/v1/conversations",
			`{"items":[{"role":"user","content":"x"}],"metadata":{"k":"v"}}`).id())
	}
	for query, want := range map[string][]string{
		"":                            {made[2], made[1], made[0]},
		"?order=asc&limit=2":          {made[0], made[1]},
		"?limit=1":                    {made[2]},
		"?after=" + made[1]:           {made[0]},
		"?order=asc&after=" + made[2]: nil,
	} {
		var got []string
		page := h.call(200, "GET", "/v1/conversations"+query, nil)
		for _, c := range page["data"].([]any) {
			got = append(got, object(c.(map[string]any)).id())
		}
		if !slices.Equal(got, want) || page["has_more"] != (len(want) > 0 && strings.Contains(query, "limit")) {
			t.Errorf("%s: got %v, want %v", query, page, want)
		}
	}
	h.key("sk-b", "proj_b")
	if page := h.call(200, "GET", "/v1/conversations", nil); len(page["data"].([]any)) > 0 {
		t.Errorf("another project: got %v", page)
	}
}

// Another project's objects are answered like objects that do not exist.
func TestConversationOfAnother(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-theirs", "proj_theirs")
	theirs := h.newConversation(`{"role":"user","id":"msg_theirs","content":"secret"}`)
	h.key("sk-mine", "proj_mine")
	mine := h.newConversation(userSays("mine"))
	for _, id := range []string{theirs, "conv_none"} {
		path, message := "/v1/conversations/"+id, "Conversation with id '"+id+"' not found."
		h.wantError(404, "GET", path, "", message, "", "")
		h.wantError(404, "POST", path, `{"metadata":{}}`, message, "", "")
		h.wantError(404, "DELETE", path, "", message, "", "")
		h.wantError(404, "GET", path+"/items", "", message, "", "")
		h.wantError(404, "GET", path+"/items?after=msg_theirs", "", message, "", "")
		h.wantError(404, "GET", path+"/items/msg_theirs", "", message, "", "")
		h.wantError(404, "DELETE", path+"/items/msg_theirs", "", message, "", "")
		h.wantError(404, "POST", path+"/items", `{"items":[]}`, message, "", "")
		h.wantError(404, "POST", path+"/items", `{"items":[`+userSays("x")+`]}`, message, "", "")
		h.wantError(404, "POST", "/v1/responses", say("x", `"conversation":"`+id+`"`), message, "", "")
		h.wantError(404, "POST", "/v1/responses/input_tokens", say("x", `"conversation":{"id":"`+id+`"}`), message,
			"", "")
	}
	h.wantError(404, "GET", "/v1/conversations/"+mine+"/items/msg_theirs", "",
		"Item with id 'msg_theirs' not found in conversation.", "", "")
	h.token = "sk-theirs"
	if got := h.listed(theirs); !slices.Equal(got, []string{"secret"}) {
		t.Errorf("their conversation is %q", got)
	}
}

func TestConversationRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	conv := h.newConversation(`{"role":"user","id":"msg_1","content":"x"}`)
	path := "/v1/conversations/" + conv
	many := strings.TrimSuffix(strings.Repeat(userSays("x")+",", 21), ",")
	duplicate := "Duplicate item found with id msg_1. Remove duplicate items from your input and try again."
	tooMany := "Invalid 'items': array too long. Expected an array with maximum length 20, but got an array with length 21 instead."
	for _, c := range []struct{ path, body, message, param, code string }{
		{"/v1/conversations", `{"items":[` + many + `]}`, tooMany, "items", "array_above_max_length"},
		{"/v1/conversations", `{"item":[]}`, "Unknown parameter: 'item'.", "item", "unknown_parameter"},
		{"/v1/conversations", `{"metadata":{"a":1}}`,
			"Invalid type for 'metadata.a': expected a string, but got an integer instead.", "metadata.a",
			"invalid_type"},
		{path, `{}`, "Missing required parameter: 'metadata'.", "metadata", "missing_required_parameter"},
		{path + "/items", `{"items":[` + many + `]}`, tooMany, "items", "array_above_max_length"},
		{path + "/items", `{}`, "Missing required parameter: 'items'.", "items", "missing_required_parameter"},
		{path + "/items?include=x", `{"items":[]}`, "", "include", "invalid_value"},
		{path + "/items", `{"items":[` + userSays("y") + `,{"role":"user","id":"msg_1","content":"x"}]}`, duplicate,
			"items", ""},
		{path + "/items",
			`{"items":[{"role":"user","id":"msg_2","content":"x"},{"role":"user","id":"msg_2","content":"x"}]}`,
			strings.ReplaceAll(duplicate, "msg_1", "msg_2"), "items", ""},
		{path + "/items", `{"items":[{"role":"user","id":"` + conv + `","content":"x"}]}`, "Invalid 'items[0].id': '" +
			conv + "'. Expected an ID that begins with 'msg'.", "items[0].id", "invalid_value"},
		{path + "/items", `{"items":[{"type":"item_reference","id":"msg_1"}]}`, "Item with id 'msg_1' not found.",
			"items[0].id", ""},
		{path + "/items", `{"items":[{"type":"program","id":"cm_1","call_id":"c","code":""}]}`,
			"Missing required parameter: 'items[0].fingerprint'.", "items[0].fingerprint",
			"missing_required_parameter"},
		{path + "/items", `{"items":[{"type":"compaction_trigger"}]}`,
			"Invalid 'items[0]': a compaction_trigger is only allowed in the input of a response.", "items[0]", ""},
		{"/v1/responses", `{"model":"scripted","conversation":"` + conv +
			`","input":[{"role":"user","id":"msg_1","content":"x"}]}`, duplicate, "input", ""},
	} {
		if c.message == "" {
			c.message, _ = h.call(400, "POST", c.path, c.body).at("error", "message").(string)
		}
		h.wantError(400, "POST", c.path, c.body, c.message, c.param, c.code)
	}
	h.call(404, "POST", path+"/items",
		`{"items":[{"role":"user","content":[{"type":"input_image","file_id":"file-none"}]}]}`)
	for query, param := range map[string]string{"?limit=101": "limit", "?order=up": "order", "?after=msg_0": "after",
		"?before=msg_1": "before", "?include=x": "include"} {
		if got := h.call(400, "GET", path+"/items"+query, nil).at("error", "param"); got != param {
			t.Errorf("%s: the error is about %v, want %s", query, got, param)
		}
	}
	if got := h.listed(conv); len(got) != 1 {
		t.Errorf("after the refused requests, the conversation is %q", got)
	}
}

// A response shows its conversation, adds to it, and continues in its container.
func TestResponseInConversation(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	conv := h.newConversation(userSays("Ahoy."))
	first := h.call(200, "POST", "/v1/responses", say("```sh\necho 41 > n\n```", shell, `"conversation":"`+conv+`"`))
	if diff := cmp.Diff(map[string]any{"id": conv}, first["conversation"]); diff != "" {
		t.Errorf("the response's conversation (-want +got):\n%s", diff)
	}
	second := h.call(200, "POST", "/v1/responses", say("```sh\necho $(($(cat n) + 1))\n```", shell,
		`"conversation":{"id":"`+conv+`"}`, `"store":false`))
	if got := second.at("output", 1, "output", 0, "stdout"); got != "42\n" {
		t.Errorf("the second response printed %v, want 42", got)
	}
	items := h.call(200, "GET", "/v1/conversations/"+conv+"/items?order=asc", nil)["data"].([]any)
	var kinds []string
	for _, it := range items {
		kinds = append(kinds, it.(map[string]any)["type"].(string))
	}
	turn := []string{"message", "shell_call", "shell_call_output", "message"}
	if diff := cmp.Diff(append(append([]string{"message"}, turn...), turn...), kinds); diff != "" {
		t.Errorf("the conversation (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(first.at("output", 1), items[3]); diff != "" {
		t.Errorf("an output item in the conversation (-response +conversation):\n%s", diff)
	}
	plain := h.call(200, "POST", "/v1/responses", say("Ahoy."))
	if _, shown := plain["conversation"]; shown {
		t.Error("a response without a conversation shows one")
	}
	more := h.call(200, "POST", "/v1/responses/input_tokens",
		say("Ahoy.", `"conversation":"`+conv+`"`)).at("input_tokens").(float64)
	if alone := h.call(200, "POST", "/v1/responses/input_tokens",
		say("Ahoy.")).at("input_tokens").(float64); more < alone+20 {
		t.Errorf("the conversation's context has %v tokens, its last message alone %v", more, alone)
	}
	// The conversation's items may be the whole input.
	h.call(200, "POST", "/v1/conversations/"+conv+"/items", `{"items":[`+userSays("Are you there?")+`]}`)
	if got := h.call(200, "POST", "/v1/responses",
		`{"model":"scripted","conversation":"`+conv+`"}`); got["status"] != "completed" {
		t.Errorf("got %v", got)
	}
	h.call(200, "DELETE", "/v1/conversations/"+conv, nil)
	h.call(200, "GET", "/v1/responses/"+first.id(), nil)
}

// While a response is in progress, its conversation accepts items but no other response.
func TestConversationLocked(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	conv := h.newConversation()
	body := `{"model":"vendor/fed","input":[{"role":"user","content":"x"}],"background":true,"conversation":"` + conv +
		`"}`
	r := h.call(200, "POST", "/v1/responses", body)
	const locked = "Another process is currently operating on this conversation. Please retry in a few seconds."
	h.wantError(409, "POST", "/v1/responses", body, locked, "conversation", "conversation_locked")
	h.call(200, "POST", "/v1/conversations/"+conv+"/items", `{"items":[`+userSays("meanwhile")+`]}`)
	if got := h.listed(conv); !slices.Equal(got, []string{"meanwhile"}) {
		t.Errorf("before the end the conversation is %q", got)
	}
	h.fed.words <- "Done."
	h.fed.words <- ""
	h.rest(h.stream(t.Context(), "GET", "/v1/responses/"+r.id()+"?stream=true", nil))
	if got := h.listed(conv); !slices.Equal(got, []string{"meanwhile", "x", "Done."}) {
		t.Errorf("after the end the conversation is %q", got)
	}
}

// Items of concurrent requests are each added once, and those of a request in order.
func TestConversationAppendedAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	conv := h.newConversation()
	const writers, rounds = 8, 5
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := range rounds {
				resp := h.send(t.Context(), "POST", "/v1/conversations/"+conv+"/items", fmt.Sprintf(`{"items":[%s,%s]}`,
					userSays(fmt.Sprintf("%d %da", w, n)), userSays(fmt.Sprintf("%d %db", w, n))))
				if resp.Body.Close(); resp.StatusCode != 200 {
					t.Errorf("got %s", resp.Status)
				}
			}
		})
	}
	all.Wait()
	got := h.listed(conv)
	if len(got) != writers*rounds*2 {
		t.Fatalf("got %d items, want %d", len(got), writers*rounds*2)
	}
	for w := range writers {
		mine := slices.DeleteFunc(slices.Clone(got), func(s string) bool {
			return !strings.HasPrefix(s, fmt.Sprint(w, " "))
		})
		if !slices.IsSorted(mine) {
			t.Errorf("writer %d's items are in the order %q", w, mine)
		}
	}
	for i := 0; i < len(got); i += 2 {
		if strings.TrimSuffix(got[i], "a") != strings.TrimSuffix(got[i+1], "b") {
			t.Errorf("items of one request are apart: %q, %q", got[i], got[i+1])
		}
	}
}
