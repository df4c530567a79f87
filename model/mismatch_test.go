package model_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/anthropic"
	"github.com/berth-run/berth/model/chat"
	"github.com/berth-run/berth/model/gemini"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/model/openai"
	"github.com/berth-run/berth/model/upstream"
)

// TestMismatch: an answer that did not start in the upstream's dialect is reported as
// a mismatch, and one that did as ended early.
func TestMismatch(t *testing.T) {
	const (
		events   = "text/event-stream; charset=utf-8"
		page     = "The upstream 'x' answered 200 text/html, which is not an event stream. Check its base_url."
		noStream = "The upstream 'x' answered 200 application/json, which is not an event stream. Check its base_url."
		noBody   = "The upstream 'x' answered 200 without a body. Check its base_url."
		dialect  = "The upstream 'x' answered 200 without an event of its dialect. Check its base_url."
		brokeOff = "The upstream 'x' ended its answer early."
	)
	starts := map[string]string{
		"chat":      "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n",
		"openai":    "data: {\"type\":\"response.created\",\"response\":{\"model\":\"m\"}}\n\n",
		"anthropic": "data: {\"type\":\"message_start\",\"message\":{\"id\":\"a\"}}\n\n",
		"gemini":    "data: {\"candidates\":[{\"content\":{\"parts\":[]}}]}\n\n",
	}
	open := map[string]func(upstream.Options) (model.Provider, error){
		"chat":   func(o upstream.Options) (model.Provider, error) { return chat.New(chat.Options{Options: o}) },
		"openai": func(o upstream.Options) (model.Provider, error) { return openai.New(openai.Options{Options: o}) },
		"anthropic": func(o upstream.Options) (model.Provider, error) {
			return anthropic.New(anthropic.Options{Options: o})
		},
		"gemini": func(o upstream.Options) (model.Provider, error) { return gemini.New(gemini.Options{Options: o}) },
	}
	for name := range starts {
		other := starts["gemini"]
		if name == "gemini" {
			other = starts["chat"]
		}
		tests := map[string]struct{ kind, body, want string }{
			"a page":          {"text/html; charset=utf-8", "<html>Sign in</html>", page},
			"JSON":            {"application/json", `{"status":"ok"}`, noStream},
			"an empty body":   {events, "", noBody},
			"another dialect": {events, other, dialect},
			"comments":        {events, ": processing\n\n", dialect},
			"no JSON":         {events, "data: Internal Server Error\n\n", dialect},
			"a start":         {events, starts[name], brokeOff},
		}
		for what, tt := range tests {
			t.Run(name+"/"+what, func(t *testing.T) {
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", tt.kind)
					_, _ = io.WriteString(w, tt.body)
				}))
				defer server.Close()
				p, err := open[name](upstream.Options{Name: "x", BaseURL: server.URL, APIKey: "k"})
				if err != nil {
					t.Fatal(err)
				}
				_, err = modeltest.Collect(t, p, &model.Request{Model: "m", Items: []berth.Item{
					berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: "user",
						Content: []berth.Content{{Type: "input_text", Text: "hi"}}})}})
				if e, ok := errors.AsType[*berth.Error](err); !ok || e.Code != berth.CodeUpstream ||
					e.Message != tt.want {
					t.Errorf("got %v, want %q", err, tt.want)
				}
			})
		}
	}
}
