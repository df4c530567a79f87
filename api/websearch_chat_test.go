package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// Chat Completions searches with web_search_options and cites pages by url_citation, in an
// answer and in a stream.
func TestChatWebSearch(t *testing.T) {
	t.Parallel()
	m := &playedModel{}
	w := newWeb(t, tidesSite, model.Rule{Match: "played", Provider: m})
	w.results = []berth.WebSearchResult{{URL: "/tides", Title: "Tides of Brest", Text: "High water …"}}
	search := turn(model.Call{ID: "call_1", Name: "web_search",
		Arguments: `{"type":"search","queries":["high water"]}`}, stopped)
	cite := func(req *model.Request) model.Delta {
		shown := functionOutput(t, req.Items)
		return model.Text{Text: "At noon " + shown[strings.Index(shown, "【"):strings.Index(shown, "】")+len("】")]}
	}
	m.turns = [][]any{search, turn(cite, stopped)}
	body := `{"model":"played","messages":[{"role":"user","content":"When?"}],"web_search_options":{"search_context_size":"low","user_location":{"type":"approximate","approximate":{"country":"FR","city":"Brest"}}}`
	answer := w.call(200, "POST", "/v1/chat/completions", body+`}`)
	link := "([127.0.0.1](" + w.site.URL + "/tides))"
	want := []any{map[string]any{"type": "url_citation", "url_citation": map[string]any{"start_index": 8.0,
		"end_index": float64(8 + len(link)), "url": w.site.URL + "/tides", "title": "Tides of Brest"}}}
	if diff := cmp.Diff(want, answer.at("choices", 0, "message", "annotations")); diff != "" || answer.at("choices", 0,
		"message", "content") != "At noon "+link {
		t.Errorf("answer %v, annotations (-want +got):\n%s", answer, diff)
	}
	if diff := cmp.Diff([]object{{"query": "high water", "max_results": 5.0,
		"user_location": map[string]any{"type": "approximate", "country": "FR", "city": "Brest"}}},
		w.asked); diff != "" {
		t.Errorf("the service received (-want +got):\n%s", diff)
	}
	var cited any
	for _, ev := range w.rest(w.stream(t.Context(), "POST", "/v1/chat/completions", body+`,"stream":true}`)) {
		var chunk object
		if json.Unmarshal(ev.Data, &chunk) == nil && chunk.at("choices", 0, "delta", "annotations") != nil {
			cited = chunk.at("choices", 0, "delta", "annotations")
		}
	}
	if diff := cmp.Diff(any(want), cited); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
}
