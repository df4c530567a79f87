package chat_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/chat"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/model/upstream"
)

var ok = modeltest.Always(modeltest.Reply(model.Text{Text: "ok"}, model.Finish{Reason: model.FinishStop}))

func message(role, text string) berth.Item {
	return berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: role,
		Content: []berth.Content{{Type: "input_text", Text: text}}})
}

// received sends a request. It returns the request as the double received it, and the
// fields of its body.
func received(t *testing.T, req *model.Request, with ...func(*chat.Options)) (*modeltest.Request,
	map[string]json.RawMessage) {
	t.Helper()
	p, double := open(t, ok, with...)
	double.Reasoning = "reasoning_content"
	if req.Model == "" {
		req.Model = "m"
	}
	if _, err := modeltest.Collect(t, p, req); err != nil {
		t.Fatal(err)
	}
	sent := double.Requests()[0]
	var body map[string]json.RawMessage
	if err := json.Unmarshal(sent.Body, &body); err != nil {
		t.Fatal(err)
	}
	return sent, body
}

// The body has exactly these fields: an upstream that knows few parameters gets no
// more than the client set.
func TestBody(t *testing.T) {
	plain := func() *model.Request {
		return &model.Request{Items: []berth.Item{message("user", "<hi>")}, Text: berth.TextConfig{Verbosity: "medium"},
			ParallelToolCalls: true}
	}
	const common = `"model":"m","messages":[{"role":"user","content":"<hi>"}],"stream":true,"stream_options":{"include_usage":true}`
	tests := []struct {
		name string
		req  func(*model.Request)
		with func(*chat.Options)
		want string
	}{
		{name: "plain", want: `{` + common + `}`},
		{name: "bound", req: func(r *model.Request) { r.MaxOutputTokens = 9 }, want: `{` + common + `,"max_tokens":9}`},
		{name: "max_completion_tokens", req: func(r *model.Request) {
			r.MaxOutputTokens = 9
		}, with: func(o *chat.Options) { o.MaxTokens = "max_completion_tokens" },
			want: `{` + common + `,"max_completion_tokens":9}`},
		{name: "verbosity", req: func(r *model.Request) {
			r.Text.Verbosity = "low"
		}, want: `{` + common + `,"verbosity":"low"}`},
		{name: "sampling", req: func(r *model.Request) {
			half, seed := 0.5, int64(-7)
			r.Sampling = berth.Sampling{Stop: []string{"a", "b"}, FrequencyPenalty: &half, PresencePenalty: &half,
				Seed: &seed, LogitBias: map[string]int{"50256": -100}}
		}, want: `{` + common +
			`,"stop":["a","b"],"frequency_penalty":0.5,"presence_penalty":0.5,"seed":-7,"logit_bias":{"50256":-100}}`},
		{name: "hints", req: func(r *model.Request) {
			r.Hints = model.Hints{ServiceTier: "priority", SafetyIdentifier: "s", PromptCacheKey: "k",
				PromptCacheRetention: "24h", Moderation: json.RawMessage(`{"model":"m"}`)}
		}, want: `{` + common +
			`,"service_tier":"priority","prompt_cache_key":"k","prompt_cache_retention":"24h","safety_identifier":"s"}`},
		{name: "probabilities without alternatives", req: func(r *model.Request) {
			r.Logprobs = true
		}, want: `{` + common + `,"logprobs":true}`},
		{name: "a choice without tools", req: func(r *model.Request) {
			r.ToolChoice.Mode, r.ParallelToolCalls = "none", false
		}, want: `{` + common + `}`},
		{name: "a tool", req: func(r *model.Request) { r.Tools = []berth.FunctionTool{{Name: "f"}} },
			want: `{` + common +
				`,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := plain()
			if tt.req != nil {
				tt.req(req)
			}
			if tt.with == nil {
				tt.with = func(*chat.Options) {}
			}
			sent, _ := received(t, req, tt.with)
			if diff := cmp.Diff(tt.want, strings.TrimSpace(string(sent.Body))); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSystemRole(t *testing.T) {
	req := &model.Request{Instructions: "A.", Items: []berth.Item{message("user", "hi"), message("developer", "B."),
		message("system", "C.")}}
	for role, want := range map[string]string{"": "system user system system",
		"developer": "developer user developer system"} {
		_, body := received(t, req, func(o *chat.Options) { o.SystemRole = role })
		var messages []struct{ Role string }
		if err := json.Unmarshal(body["messages"], &messages); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range messages {
			got = append(got, m.Role)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: got roles %v, want %s", role, got, want)
		}
	}
}

// Participants of one role keep their names. System messages of two participants are
// not merged.
func TestNames(t *testing.T) {
	named := func(role, name string) berth.Item {
		kind := "input_text"
		if role == "assistant" {
			kind = "output_text"
		}
		return berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: role, Name: name,
			Content: []berth.Content{{Type: kind, Text: "x"}}})
	}
	_, body := received(t, &model.Request{Items: []berth.Item{named("system", "rule"), named("system", "example"),
		named("user", "ann"), named("user", "bob"), named("assistant", "eve"), named("user", "")}})
	want := `[{"role":"system","content":"x","name":"rule"},{"role":"system","content":"x","name":"example"},` +
		`{"role":"user","content":"x","name":"ann"},{"role":"user","content":"x","name":"bob"},` +
		`{"role":"assistant","content":"x","name":"eve"},{"role":"user","content":"x"}]`
	if got := string(body["messages"]); got != want {
		t.Errorf("messages:\ngot  %s\nwant %s", got, want)
	}
}

func TestReasoningIsSentBack(t *testing.T) {
	thought := func(text string) berth.Item {
		return berth.NewItem(berth.Reasoning{Type: berth.ItemReasoning, Summary: []berth.Content{},
			Content: []berth.Content{{Type: "reasoning_text", Text: text}}})
	}
	req := &model.Request{Items: []berth.Item{
		message("user", "hi"),
		thought("First."), berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: "c1", Name: "f",
			Arguments: "{}"}),
		berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: "c1",
			Output: berth.StringDelta("1")}),
		thought("Second."), message("assistant", "One."),
		thought("Lost."), message("user", "why?"),
	}}
	want := []modeltest.Message{
		{Role: "user", Text: "hi"},
		{Role: "assistant", Thought: "First.", Calls: []modeltest.Call{{ID: "c1", Name: "f", Arguments: "{}"}}},
		{Role: "tool", CallID: "c1", Text: "1"},
		{Role: "assistant", Thought: "Second.", Text: "One."}, {Role: "user", Text: "why?"},
	}
	sent, _ := received(t, req, func(o *chat.Options) { o.Reasoning = "reasoning_content" })
	if diff := cmp.Diff(want, sent.Messages, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if sent, _ := received(t, req); bytes.Contains(sent.Body, []byte("First")) {
		t.Errorf("reasoning went to an upstream that did not want it: %s", sent.Body)
	}
}

func TestCallIDLength(t *testing.T) {
	req := &model.Request{Items: []berth.Item{
		berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: "call_0123456789", Name: "f",
			Arguments: "{}"}),
		berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: "D681PevKs", Name: "f",
			Arguments: "{}"}),
	}}
	sent, _ := received(t, req, func(o *chat.Options) { o.CallIDLength = 9 })
	calls := sent.Messages[0].Calls
	if len(calls[0].ID) != 9 || calls[0].ID == "call_0123" || calls[1].ID != "D681PevKs" {
		t.Errorf("got ids %q and %q", calls[0].ID, calls[1].ID)
	}
}

// Keys of the environment belong to another upstream.
func TestHeaders(t *testing.T) {
	for _, name := range []string{"API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "BASE_URL"} {
		t.Setenv("OPENAI_"+name, "http://secret-of-the-environment")
	}
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Env: secret-of-the-environment")
	req := &model.Request{Items: []berth.Item{message("user", "hi")}}
	sent, _ := received(t, req, func(o *chat.Options) { o.Headers = map[string]string{"X-Title": "Berth"} })
	if got := sent.Header.Get("X-Title"); got != "Berth" {
		t.Errorf("X-Title: got %q", got)
	}

	double := modeltest.NewChatServer(t, ok)
	p, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: double.URL + "/"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := modeltest.Collect(t, p, &model.Request{Model: "m", Items: req.Items}); err != nil {
		t.Fatal(err)
	}
	for k, v := range double.Requests()[0].Header {
		if k == "Authorization" || strings.Contains(strings.Join(v, ""), "secret-of") {
			t.Errorf("without a key: sent %s: %s", k, v)
		}
	}
}

func TestModels(t *testing.T) {
	p, double := open(t, ok)
	double.Models = []string{"b", "a"}
	got, err := p.Models(t.Context())
	want := []berth.Model{{ID: "b", Object: "model", Created: 1700000000, OwnedBy: "double"},
		{ID: "a", Object: "model", Created: 1700000000, OwnedBy: "double"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, models (-want +got):\n%s", err, diff)
	}
	double.Key = "another"
	if _, err := p.Models(t.Context()); berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("with a wrong key: got %v", err)
	}
}

func TestOptions(t *testing.T) {
	at := func(url string) upstream.Options { return upstream.Options{BaseURL: url} }
	for _, opts := range []chat.Options{
		{}, {Options: at("localhost:8000")}, {Options: at("ftp://x/")}, {Options: at("http://")},
		{Options: at("http://x"), SystemRole: "user"}, {Options: at("http://x"), MaxTokens: "n"},
		{Options: at("http://x"), Reasoning: "thoughts"},
	} {
		if _, err := chat.New(opts); err == nil {
			t.Errorf("%+v was accepted", opts)
		}
	}
	_, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: "http://me:hunter22@x y/"}})
	if err == nil || strings.Contains(err.Error(), "hunter22") {
		t.Errorf("got %v, want an error without the password", err)
	}
}

// Dropped and repaired input is logged, without secrets.
func TestLog(t *testing.T) {
	var out bytes.Buffer
	double := modeltest.NewChatServer(t, modeltest.Play(
		modeltest.Reply(modeltest.Raw("data: {\"model\":7}\n\n"), model.Text{Text: "ok"}, model.Finish{Reason: "eos"}),
		modeltest.Turn{Refusal: &modeltest.Refusal{Status: http.StatusUnauthorized,
			Message: "Incorrect API key provided: " + modeltest.Key}}))
	p, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: double.URL, APIKey: modeltest.Key,
		Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}})
	if err != nil {
		t.Fatal(err)
	}
	req := &model.Request{Model: "m", Items: []berth.Item{
		berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: "lonely-call", Name: "f",
			Arguments: "{}"}),
		berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: "lonely-output",
			Output: berth.StringDelta("1")}),
		berth.NewItem(map[string]string{"type": "computer_call", "id": "lonely-item"}),
	}}
	if _, err := modeltest.Collect(t, p, req); err != nil {
		t.Fatal(err)
	}
	if _, err := modeltest.Collect(t, p, req); err == nil {
		t.Fatal("a refused request succeeded")
	}
	for _, want := range []string{"lonely-call", "lonely-output", "lonely-item", "undocumented type", "eos"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log does not mention %s:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), modeltest.Key) {
		t.Errorf("the log shows the key:\n%s", out.String())
	}
}

// Secrets in headers and addresses are redacted like the key.
func TestOtherSecrets(t *testing.T) {
	double := modeltest.NewChatServer(t, modeltest.Always(modeltest.Turn{Refusal: &modeltest.Refusal{
		Status: http.StatusBadRequest, Message: "hunter22 and token-value and header-value"}}))
	p, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: strings.Replace(double.URL, "//",
		"//me:hunter22@", 1),
		Headers: map[string]string{"X-Auth": "Token token-value", "api-key": "header-value"}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = modeltest.Collect(t, p, &model.Request{Model: "m", Items: []berth.Item{message("user", "hi")}})
	e, isError := errors.AsType[*berth.Error](err)
	if !isError || e.Message != "[redacted] and [redacted] and [redacted]" {
		t.Errorf("got %v", err)
	}
}
