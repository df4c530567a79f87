package gemini_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genai"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/gemini"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/model/upstream"
)

var ok = modeltest.Always(modeltest.Reply(model.Text{Text: "ok"}, model.Finish{Reason: model.FinishStop}))

func message(role string, content ...berth.Content) berth.Item {
	return berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: role, Content: content})
}

func user(text string) berth.Item {
	return message("user", berth.Content{Type: "input_text", Text: text})
}

func call(id string) berth.Item {
	return berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: id, Name: "f",
		Arguments: `{"n":12345678901234567890}`})
}

func output(id, text string) berth.Item {
	return berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: id,
		Output: berth.StringDelta(text)})
}

// received sends a request. It returns the request as the double received it, and the
// fields of its body.
func received(t *testing.T, req *model.Request, with ...func(*gemini.Options)) (*modeltest.Request,
	map[string]json.RawMessage) {
	t.Helper()
	p, double := open(t, ok, with...)
	if req.Model == "" {
		req.Model = "gemini-3.5-flash"
	}
	if req.Items == nil {
		req.Items = []berth.Item{user("hi")}
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

// everything returns a request with every field that the provider can send.
func everything() *model.Request {
	half, effort, summary, strict, seed, two := 0.5, "high", "auto", true, int64(7), 2
	return &model.Request{
		Model: "gemini-3.5-flash", Instructions: "Be brief.",
		Items: []berth.Item{
			message("developer", berth.Content{Type: "input_text", Text: "Be kind."}),
			message("user", berth.Content{Type: "input_text", Text: "What are these?"},
				berth.Content{Type: "input_image", ImageURL: "data:image/png;base64,iVBORw0KGgo="},
				berth.Content{Type: "input_image", ImageURL: "https://example.com/a.png?size=1"},
				berth.Content{Type: "input_file", Filename: "a.pdf", FileData: "data:application/pdf;base64,JVBERi0="},
				berth.Content{Type: "input_file", Filename: "a.txt", FileData: "aGk="},
				berth.Content{Type: "input_file", FileURL: "https://example.com/b.pdf"}),
			call("c1"),
			berth.NewItem(map[string]any{"type": "function_call_output", "call_id": "c1", "output": []berth.Content{
				{Type: "input_text", Text: "a chart"},
				{Type: "input_image", ImageURL: "data:image/png;base64,iVBORw0KGgo="}}}),
			message("assistant", berth.Content{Type: "output_text", Text: "A chart."}),
			message("developer", berth.Content{Type: "input_text", Text: "Be loud."}),
			user("And?"), call("c2"), output("c2", "1"),
		},
		Tools: []berth.FunctionTool{{Type: "function", Name: "f", Description: "Does.", Strict: &strict,
			Parameters: json.RawMessage(
				`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`)},
			{Type: "function", Name: "g"}},
		ToolChoice: model.ToolChoice{Mode: "function", Name: "f"}, MaxOutputTokens: 500, Temperature: &half,
		TopP: &half,
		Text: berth.TextConfig{Verbosity: "low",
			Format: json.RawMessage(
				`{"type":"json_schema","name":"n","schema":{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"string"}}}}`)},
		Reasoning: berth.ReasoningConfig{Effort: &effort, Summary: &summary}, TopLogprobs: &two,
		Sampling: berth.Sampling{Stop: []string{"END"}, Seed: &seed, FrequencyPenalty: &half, PresencePenalty: &half},
	}
}

// The vendor's types have every field that the provider sends.
func TestVendorTypesHaveFields(t *testing.T) {
	sent, _ := received(t, everything())
	// The placeholder for foreign calls is in base64url, which the vendor's server
	// decodes and its types do not.
	sent.Body = bytes.ReplaceAll(sent.Body, []byte("skip_thought_signature_validator"),
		[]byte("skip+thought+signature+validator"))
	var known struct {
		Contents          []*genai.Content        `json:"contents"`
		SystemInstruction *genai.Content          `json:"systemInstruction"`
		Tools             []*genai.Tool           `json:"tools"`
		ToolConfig        *genai.ToolConfig       `json:"toolConfig"`
		GenerationConfig  *genai.GenerationConfig `json:"generationConfig"`
	}
	d := json.NewDecoder(bytes.NewReader(sent.Body))
	d.DisallowUnknownFields()
	if err := d.Decode(&known); err != nil {
		t.Fatalf("%v in %s", err, sent.Body)
	}
	again, err := json.Marshal(known)
	if err != nil {
		t.Fatal(err)
	}
	number := func(raw []byte) (v any) { // without the digits that the vendor's types lose
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if diff := cmp.Diff(number(sent.Body), number(again)); diff != "" {
		t.Errorf("fields unknown to the vendor's types (-sent +known):\n%s", diff)
	}
	if !bytes.Contains(sent.Body, []byte(`"args":{"n":12345678901234567890}`)) {
		t.Errorf("the arguments were changed: %s", sent.Body)
	}
}

// The vendor's client can read the double.
func TestVendorClientReadsDouble(t *testing.T) {
	double := modeltest.NewGeminiServer(t, modeltest.Always(modeltest.Reply(model.Thought{Text: "Hm."},
		model.Text{Text: "Let me see."},
		model.Call{ID: "c1", Name: "f", Arguments: `{"a":`}, model.Call{Arguments: `1}`},
		model.Finish{Reason: model.FinishStop, Usage: berth.Usage{InputTokens: 3, TotalTokens: 3}})))
	client, err := genai.NewClient(t.Context(), &genai.ClientConfig{APIKey: "k", Backend: genai.BackendGeminiAPI,
		HTTPOptions: genai.HTTPOptions{BaseURL: double.URL}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for res, err := range client.Models.GenerateContentStream(t.Context(), "gemini-3.5-flash", genai.Text("hi"), nil) {
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range res.Candidates[0].Content.Parts {
			switch {
			case p.Thought:
				got = append(got, "thought "+p.Text)
			case p.FunctionCall != nil && p.FunctionCall.Args["a"] == 1.0 && len(p.ThoughtSignature) > 0:
				got = append(got, "call "+p.FunctionCall.Name)
			case p.Text != "":
				got = append(got, "text "+p.Text)
			}
		}
		if r := res.Candidates[0].FinishReason; r != "" {
			got = append(got, string(r))
		}
	}
	if want := "thought Hm.,text Let me see.,call f,STOP"; strings.Join(got, ",") != want {
		t.Errorf("got %q, want %s", got, want)
	}
}

func TestBody(t *testing.T) {
	const hi = `{"contents":[{"role":"user","parts":[{"text":"<hi>"}]}]`
	half := 0.1
	tests := []struct {
		name string
		req  func(*model.Request)
		want string
	}{
		{"plain", func(r *model.Request) { r.Text.Verbosity = "medium" }, hi + `}`},
		{"sampling", func(r *model.Request) { r.Temperature = &half }, hi + `,"generationConfig":{"temperature":0.1}}`},
		{"verbosity", func(r *model.Request) {
			r.Text.Verbosity = "high"
		}, hi + `,"systemInstruction":{"parts":[{"text":"Answer at length and in detail."}]}}`},
		{"a JSON object", func(r *model.Request) {
			r.Text.Format = json.RawMessage(`{"type":"json_object"}`)
		}, hi + `,"generationConfig":{"responseMimeType":"application/json"}}`},
		{"a schema beside tools, before Gemini 3", func(r *model.Request) {
			r.Model, r.Tools, r.Text.Format = "gemini-2.5-pro", []berth.FunctionTool{{Name: "f"}},
				json.RawMessage(`{"type":"json_schema","schema":{"type":"object"}}`)
		}, hi + `,"systemInstruction":{"parts":[{"text":"Answer with one JSON object and nothing else: no words around it, no code fence.\n\nIts JSON schema is:\n{\"type\":\"object\"}"}]},"tools":[{"functionDeclarations":[{"name":"f"}]}]}`},
		{"a choice without tools", func(r *model.Request) { r.ToolChoice.Mode = "none" }, hi + `}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := &model.Request{Items: []berth.Item{user("<hi>")}}
			tt.req(req)
			sent, _ := received(t, req)
			if diff := cmp.Diff(tt.want, string(sent.Body)); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEfforts(t *testing.T) {
	tests := []struct{ name, effort, summary, thinking, want string }{
		{"gemini-3.5-flash", "", "", "", ""},
		{"gemini-3.5-flash", "", "auto", "", `{"includeThoughts":true}`},
		{"gemini-3.5-flash", "none", "", "", `{"thinkingLevel":"LOW"}`},
		{"gemini-3.5-flash", "medium", "auto", "", `{"includeThoughts":true,"thinkingLevel":"MEDIUM"}`},
		{"gemini-3-pro-preview", "medium", "", "", `{"thinkingLevel":"HIGH"}`},
		{"gemini-3.1-pro-preview", "medium", "", "", `{"thinkingLevel":"MEDIUM"}`},
		{"gemini-4-argon", "xhigh", "", "", `{"thinkingLevel":"HIGH"}`},
		{"gemini-2.5-pro", "none", "", "", `{"thinkingBudget":128}`},
		{"gemini-2.5-pro", "xhigh", "", "", `{"thinkingBudget":32768}`},
		{"gemini-2.5-flash", "none", "auto", "", `{"thinkingBudget":0}`},
		{"gemini-2.5-flash-lite", "minimal", "", "", `{"thinkingBudget":512}`},
		{"gemini-2.5-flash", "xhigh", "auto", "", `{"includeThoughts":true,"thinkingBudget":24576}`},
		{"gemini-2.0-flash", "high", "auto", "", ""},
		{"gemini-3.5-flash", "low", "", "budget", `{"thinkingBudget":2048}`},
	}
	for _, tt := range tests {
		t.Run(tt.name+tt.effort+tt.summary, func(t *testing.T) {
			req := &model.Request{Model: tt.name}
			if tt.effort != "" {
				req.Reasoning.Effort = &tt.effort
			}
			if tt.summary != "" {
				req.Reasoning.Summary = &tt.summary
			}
			_, body := received(t, req, func(o *gemini.Options) { o.Thinking = tt.thinking })
			var config struct {
				ThinkingConfig json.RawMessage `json:"thinkingConfig"`
			}
			if body["generationConfig"] != nil {
				if err := json.Unmarshal(body["generationConfig"], &config); err != nil {
					t.Fatal(err)
				}
			}
			if got := string(config.ThinkingConfig); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// From Gemini 3 on, calls of the turn in progress need a signature. Calls of other
// vendors get the placeholder.
func TestForeignCalls(t *testing.T) {
	const word = `"thoughtSignature":"skip_thought_signature_validator"`
	items := []berth.Item{user("hi"), call("c1"), output("c1", "1"),
		message("assistant", berth.Content{Type: "output_text", Text: "One."}),
		user("And?"), call("c2"), call("c3"), output("c2", "2"), output("c3", "3"), call("c4"), output("c4", "4")}
	for name, want := range map[string]int{"gemini-3-flash-preview": 2, "gemini-2.5-pro": 0} {
		sent, _ := received(t, &model.Request{Model: name, Items: items})
		if got := strings.Count(string(sent.Body), word); got != want {
			t.Errorf("%s: got %d calls with the placeholder, want %d", name, got, want)
		}
	}
}

// Before Gemini 3, images of an output follow it.
func TestImagesInOutputs(t *testing.T) {
	req := everything()
	req.Model, req.Text.Format = "gemini-2.5-pro", nil
	sent, _ := received(t, req)
	if got := sent.Messages[2]; got.Role != "tool" || len(got.Images) != 0 || len(sent.Messages[3].Images) != 1 {
		t.Errorf("got %+v", sent.Messages[2:4])
	}
}

// A request without parallel calls gets only the first call.
func TestOneCall(t *testing.T) {
	p, _ := open(t, modeltest.Always(modeltest.Reply(model.Call{ID: "c1", Name: "f", Arguments: "{}"},
		model.Call{Index: 1, ID: "c2", Name: "g", Arguments: "{}"}, model.Finish{Reason: model.FinishStop})))
	for _, parallel := range []bool{true, false} {
		a, err := modeltest.Collect(t, p, &model.Request{Model: "gemini-3.5-flash", Items: []berth.Item{user("hi")},
			Tools: []berth.FunctionTool{{Name: "f"}, {Name: "g"}}, ParallelToolCalls: parallel})
		if err != nil || (len(a.Calls) == 2) != parallel || a.Calls[0].CallID != "c1" {
			t.Errorf("parallel %v: got %+v, %v", parallel, a.Calls, err)
		}
	}
}

func TestInvalidInput(t *testing.T) {
	huge := int64(1) << 40
	for param, req := range map[string]*model.Request{
		"logit_bias":  {Sampling: berth.Sampling{LogitBias: map[string]int{"1": 2}}},
		"seed":        {Sampling: berth.Sampling{Seed: &huge}},
		"tools":       {Tools: []berth.FunctionTool{{Name: "f", Parameters: json.RawMessage(`[]`)}}},
		"text.format": {Text: berth.TextConfig{Format: json.RawMessage(`{"type":"json_schema","schema":[]}`)}},
		"input": {Items: []berth.Item{message("user",
			berth.Content{Type: "input_file", FileData: "data:text/plain,hi"})}},
	} {
		p, double := open(t, ok)
		req.Model = "gemini-3.5-flash"
		if req.Items == nil {
			req.Items = []berth.Item{user("hi")}
		}
		if _, err := modeltest.Collect(t, p, req); berth.ErrorCode(err) != berth.CodeInvalid ||
			len(double.Requests()) != 0 {
			t.Errorf("%s: got %v", param, err)
		}
	}
}

func TestModels(t *testing.T) {
	p, double := open(t, ok)
	double.Models = []string{"gemini-b", "gemini-a"}
	got, err := p.Models(t.Context())
	want := []berth.Model{{ID: "gemini-b", Object: "model", OwnedBy: "google"},
		{ID: "gemini-a", Object: "model", OwnedBy: "google"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, models (-want +got):\n%s", err, diff)
	}
	double.Key = "another"
	if _, err := p.Models(t.Context()); berth.ErrorCode(err) != berth.CodeUnavailable {
		t.Errorf("with a wrong key: got %v", err)
	}
}

// Keys of the environment belong to another upstream. Model names cannot escape the
// path.
func TestRequests(t *testing.T) {
	for _, name := range []string{"GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL",
		"GOOGLE_GENAI_USE_VERTEXAI"} {
		t.Setenv(name, "secret-of-the-environment")
	}
	var paths []string
	transport := roundTrip(func(r *http.Request) (*http.Response, error) {
		paths = append(paths, r.URL.String())
		for k, v := range r.Header {
			if k == "X-Goog-Api-Key" || strings.Contains(strings.Join(v, ""), "secret-of") {
				t.Errorf("without a key: sent %s: %s", k, v)
			}
		}
		if r.Header.Get("X-Title") != "Berth" {
			t.Error("a header is missing")
		}
		return &http.Response{StatusCode: http.StatusTeapot, Body: http.NoBody}, nil
	})
	for _, base := range []string{"http://x", "http://x/", "http://x/v1beta", "http://x/v1beta/"} {
		p, err := gemini.New(gemini.Options{Options: upstream.Options{BaseURL: base,
			Headers: map[string]string{"X-Title": "Berth"}, HTTPClient: &http.Client{Transport: transport}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"gemini-3.5-flash", "tunedModels/a?b", "../../v2/x"} {
			_, _ = modeltest.Collect(t, p, &model.Request{Model: name, Items: []berth.Item{user("hi")}})
		}
	}
	for i, got := range paths {
		want := []string{"http://x/v1beta/models/gemini-3.5-flash:streamGenerateContent?alt=sse",
			"http://x/v1beta/tunedModels/a%3Fb:streamGenerateContent?alt=sse",
			"http://x/v1beta/%2E%2E/%2E%2E/v2/x:streamGenerateContent?alt=sse"}[i%3]
		if got != want {
			t.Errorf("got path %s, want %s", got, want)
		}
	}
	for _, opts := range []gemini.Options{{Options: upstream.Options{BaseURL: "localhost"}}, {Thinking: "much"}} {
		if _, err := gemini.New(opts); err == nil {
			t.Errorf("%+v was accepted", opts)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func FuzzHistory(f *testing.F) {
	double := modeltest.NewGeminiHandler(modeltest.Always(modeltest.Reply(model.Text{Text: "ok"},
		model.Finish{Reason: model.FinishStop})))
	p, err := gemini.New(gemini.Options{Options: upstream.Options{BaseURL: "http://double",
		HTTPClient: &http.Client{Transport: modeltest.Direct{Handler: double}}}})
	if err != nil {
		f.Fatal(err)
	}
	modeltest.FuzzHistory(f, p, double.Double)
}
