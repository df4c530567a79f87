package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth/model/modeltest"
)

// TestFallback: an upstream that fails, and one that breaks its connections, are
// passed over; who answers does the work in the container, and no client sees a key.
func TestFallback(t *testing.T) {
	var asked [2]atomic.Int64
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked[0].Add(1)
		http.Error(w, `{"error":{"message":"down, says `+r.Header.Get("Authorization")+`"}}`,
			http.StatusInternalServerError)
	}))
	t.Cleanup(failing.Close)
	breaking := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked[1].Add(1)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(breaking.Close)
	spare := modeltest.NewChatServer(t, recite)
	s := newServerWith(t, fmt.Sprintf(`
upstreams:
  failing: {provider: chat, base_url: "%s/v1", api_key: key-of-failing-1}
  breaking: {provider: chat, base_url: "%s/v1", api_key: key-of-breaking-2}
  spare: {provider: chat, base_url: %q, api_key: none}
models:
  - match: any-*
    upstreams: [{name: failing}]
    fallbacks: [{name: breaking}, {name: spare, model: "reciter"}]
  - match: none-*
    upstreams: [{name: failing}]
    fallbacks: [{name: breaking}]
retry: {attempts: 1}
`, failing.URL, breaking.URL, spare.URL))
	task := shellTask("```shell\n" + `{"commands":["echo here"]}` + "\n```")
	task.Model = "any-model"
	r, err := s.client().Responses.New(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	if got := stdouts(r); len(got) != 1 || got[0] != "here\n" || r.Status != responses.ResponseStatusCompleted {
		t.Errorf("got %s with %q", r.Status, got)
	}
	if asked[0].Load() == 0 || asked[1].Load() == 0 || len(spare.Requests()) < 2 {
		t.Errorf("the upstreams were asked %d, %d and %d times", asked[0].Load(), asked[1].Load(),
			len(spare.Requests()))
	}
	told, _, err := s.berth("models")
	if err != nil || !strings.Contains(told, "failing") || !strings.Contains(told, "spare") {
		t.Errorf("berth models: got %s, %v", told, err)
	}
	task.Model = "none-model"
	_, err = s.client().Responses.New(t.Context(), task)
	if err == nil {
		t.Error("no upstream answers, but the request was answered")
	}
	if said := fmt.Sprint(err, told, s.log); strings.Contains(said, "key-of-") {
		t.Errorf("a key is shown: %s", said)
	}
}
