package api_test

import (
	"encoding/json"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/google/go-cmp/cmp"
)

// The vendor's client creates a batch, reads its results and deletes it.
func TestMessagesBatch(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-mine", "proj_mine")
	client := h.claude()
	ask := func(id, text string, tokens int64) anthropic.MessageBatchNewParamsRequest {
		return anthropic.MessageBatchNewParamsRequest{CustomID: id, Params: anthropic.MessageBatchNewParamsRequestParams{
			Model: "scripted", MaxTokens: tokens,
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))}}}
	}
	made, err := client.Messages.Batches.New(t.Context(), anthropic.MessageBatchNewParams{
		Requests: []anthropic.MessageBatchNewParamsRequest{ask("a", "hello a", 99), ask("b", "hello b", 0)}})
	check(t, err)
	conforms[anthropic.MessageBatch](t, []byte(made.RawJSON()))
	if made.ProcessingStatus != "in_progress" || made.RequestCounts.Processing != 2 || made.ResultsURL != "" {
		t.Errorf("created: got %s", made.RawJSON())
	}
	h.ended(h.client(), made.ID)
	b, err := client.Messages.Batches.Get(t.Context(), made.ID, anthropic.MessageBatchGetParams{})
	check(t, err)
	conforms[anthropic.MessageBatch](t, []byte(b.RawJSON()))
	if b.ProcessingStatus != "ended" || b.RequestCounts.Succeeded != 1 || b.RequestCounts.Errored != 1 ||
		b.ResultsURL != h.url+"/v1/messages/batches/"+made.ID+"/results" || b.EndedAt.IsZero() {
		t.Errorf("ended: got %s", b.RawJSON())
	}
	got := map[string]string{}
	for results := client.Messages.Batches.ResultsStreaming(t.Context(), made.ID,
		anthropic.MessageBatchResultsParams{}); results.Next(); {
		r := results.Current()
		conforms[anthropic.MessageBatchIndividualResponse](t, []byte(r.RawJSON()))
		switch r.Result.Type {
		case "succeeded":
			got[r.CustomID] = r.Result.Message.Content[0].Text
		case "errored":
			got[r.CustomID] = r.Result.Error.Error.Message
		}
	}
	if got["b"] != "max_tokens: Input should be greater than or equal to 1" && got["b"] == "" || got["a"] == "" {
		t.Errorf("results: got %v", got)
	}
	list, err := client.Messages.Batches.List(t.Context(), anthropic.MessageBatchListParams{})
	if err != nil || len(list.Data) != 1 || list.Data[0].ID != made.ID || list.HasMore {
		t.Errorf("list: got %v, %v", list, err)
	}
	gone, err := client.Messages.Batches.Delete(t.Context(), made.ID, anthropic.MessageBatchDeleteParams{})
	check(t, err)
	conforms[anthropic.DeletedMessageBatch](t, []byte(gone.RawJSON()))
	if _, err := client.Messages.Batches.Get(t.Context(), made.ID, anthropic.MessageBatchGetParams{}); err == nil {
		t.Error("the batch still exists")
	}
}

// A batch with a wrong request is not created.
func TestMessagesBatchRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	const one = `{"custom_id":"a","params":{"model":"scripted","max_tokens":9,"messages":[]}}`
	for body, want := range map[string]string{
		`{}`:                                     "requests: Field required",
		`{"requests":[` + one + `,` + one + `]}`: "requests.1.custom_id: custom_id must be unique in a batch",
		`{"requests":[{"custom_id":"a"}]}`:       "requests.0.params: Field required",
	} {
		if got := h.call(400, "POST", "/v1/messages/batches", body).at("error", "message"); got != want {
			t.Errorf("%s: got %v, want %s", body, got, want)
		}
	}
	if got := h.call(200, "GET", "/v1/messages/batches", nil); len(got["data"].([]any)) != 0 {
		t.Errorf("got %v", got)
	}
}

// Pages of batches follow one another in both directions.
func TestMessagesBatchPages(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	var ids []string // newest first
	for range 3 {
		o := h.call(200, "POST", "/v1/messages/batches",
			`{"requests":[{"custom_id":"a","params":{"model":"scripted","max_tokens":9,"messages":[{"role":"user","content":"x"}]}}]}`)
		ids = append([]string{o.id()}, ids...)
	}
	page := func(query string) (got []string, more bool) {
		t.Helper()
		o := h.call(200, "GET", "/v1/messages/batches?limit=2&"+query, nil)
		raw, err := json.Marshal(o["data"])
		check(t, err)
		var data []struct{ ID string }
		check(t, json.Unmarshal(raw, &data))
		for _, b := range data {
			got = append(got, b.ID)
		}
		return got, o["has_more"].(bool)
	}
	for query, want := range map[string]struct {
		ids  []string
		more bool
	}{"": {ids[:2], true}, "after_id=" + ids[1]: {ids[2:], false}, "before_id=" + ids[2]: {ids[:2], false},
		"before_id=" + ids[1]: {ids[:1], false}} {
		if got, more := page(query); !cmp.Equal(got, want.ids) || more != want.more {
			t.Errorf("%q: got %v %v, want %v", query, got, more, want)
		}
	}
}
