package chat_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/chat"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/model/upstream"
)

// TestHintsRefused: after an upstream refused a hint, this request and later ones are
// sent without hints. The reported service tier comes with the Finish.
func TestHintsRefused(t *testing.T) {
	var keys []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			PromptCacheKey string `json:"prompt_cache_key"`
			ServiceTier    string `json:"service_tier"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		keys = append(keys, body.PromptCacheKey)
		if body.PromptCacheKey != "" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write(
				[]byte(`{"detail":[{"type":"extra_forbidden","loc":["body","prompt_cache_key"],"msg":"Extra inputs are not permitted"}]}`))
			return
		}
		_, _ = w.Write([]byte(`{"model":"m","service_tier":"` + body.ServiceTier +
			`","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}`))
	}))
	t.Cleanup(server.Close)
	p, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		a, err := modeltest.Collect(t, p, &model.Request{Model: "m", Items: []berth.Item{message("user", "hi")},
			Hints: model.Hints{PromptCacheKey: "k", ServiceTier: "flex"}})
		if err != nil || a.Text != "hi" || a.Finish.ServiceTier != "flex" {
			t.Fatalf("got %+v, %v", a, err)
		}
	}
	if len(keys) != 3 || keys[0] != "k" || keys[1] != "" || keys[2] != "" {
		t.Errorf("the upstream was sent the keys %q", keys)
	}
}
