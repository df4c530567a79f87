package openai_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/contract"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/model/openai"
	"github.com/berth-run/berth/model/upstream"
)

var ok = modeltest.Always(modeltest.Reply(model.Text{Text: "ok"}, model.Finish{Reason: model.FinishStop}))

func raw(json string) berth.Item {
	var it berth.Item
	if err := it.UnmarshalJSON([]byte(json)); err != nil {
		panic(err)
	}
	return it
}

// received sends a request. It returns the request as the double received it, and the
// fields of its body.
func received(t *testing.T, req *model.Request, with ...func(*openai.Options)) (*modeltest.Request,
	map[string]json.RawMessage) {
	t.Helper()
	p, double := open(t, ok, with...)
	if req.Model == "" {
		req.Model = "gpt-5.5"
	}
	if req.Items == nil {
		req.Items = []berth.Item{raw(`{"role":"user","content":"hi"}`)}
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
	half, effort, summary, strict, two := 0.5, "high", "auto", true, 2
	return &model.Request{
		Model: "gpt-5.5", Instructions: "Be brief.",
		Items: []berth.Item{
			raw(`{"role":"developer","content":"Be kind."}`),
			raw(`{"type":"message","role":"user","content":[{"type":"input_text","text":"What?"},{"type":"input_image","image_url":"https://example.com/a.png","detail":"original"}]}`),
			raw(`{"id":"fc_1","type":"function_call","call_id":"c1","name":"f","arguments":"{}","status":"completed"}`),
			raw(`{"type":"function_call_output","call_id":"c1","output":"1"}`),
			raw(`{"id":"msg_1","type":"message","role":"assistant","status":"completed","phase":"final_answer","content":[{"type":"output_text","text":"A chart.","annotations":[],"logprobs":[]}]}`),
			raw(`{"type":"compaction","id":"cmp_1","encrypted_content":"x"}`),
			raw(`{"role":"user","content":"And?"}`),
		},
		Tools: []berth.FunctionTool{{Type: "function", Name: "f", Description: "Does.", Strict: &strict,
			Parameters: json.RawMessage(
				`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`)}},
		ToolChoice: model.ToolChoice{Mode: "function", Name: "f"}, MaxOutputTokens: 500, Temperature: &half,
		TopP: &half, TopLogprobs: &two,
		Text: berth.TextConfig{Verbosity: "low",
			Format: json.RawMessage(`{"type":"json_schema","name":"n","schema":{"type":"object"}}`)},
		Reasoning: berth.ReasoningConfig{Effort: &effort, Summary: &summary}, User: "someone",
		Hints: model.Hints{PromptCacheKey: "k", PromptCacheRetention: "24h", SafetyIdentifier: "s", ServiceTier: "flex",
			PromptCacheOptions: &berth.PromptCacheOptions{Mode: "explicit", TTL: "30m"},
			Moderation:         json.RawMessage(`{"model":"omni"}`),
			AccessPrograms:     json.RawMessage(`{"cyber":"standard"}`)},
	}
}

// Requests conform to OpenAI's published contract.
func TestContract(t *testing.T) {
	op := contract.Load().Find(http.MethodPost, "/responses")
	for _, req := range []*model.Request{{}, everything()} {
		sent, _ := received(t, req)
		if err := op.CheckRequest("application/json", sent.Body); err != nil {
			t.Errorf("%v in %s", err, sent.Body)
		}
	}
	if op.CheckRequest("application/json", []byte(`{"model":7}`)) == nil {
		t.Error("the contract allows anything")
	}
}

// The vendor's client can read the double.
func TestVendorClientReadsDouble(t *testing.T) {
	double := modeltest.NewOpenAIServer(t, modeltest.Always(modeltest.Reply(model.Thought{Text: "Hm."},
		model.Text{Text: "Let me "}, model.Text{Text: "see."}, model.Call{ID: "c1", Name: "f"},
		model.Call{Index: 1, ID: "c2", Name: "g", Arguments: "{}"}, model.Call{Arguments: `{"a":1}`},
		model.Finish{Reason: model.FinishStop, Usage: berth.Usage{InputTokens: 3}})))
	client := sdk.NewClient(option.WithBaseURL(double.URL), option.WithAPIKey("k"))
	stream := client.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{Model: "gpt-5.5",
		Store: sdk.Bool(false),
		Input: responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage("hi",
			"user")}}})
	var got responses.Response
	text := ""
	for stream.Next() {
		switch ev := stream.Current().AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text += ev.Delta
		case responses.ResponseCompletedEvent:
			got = ev.Response
		}
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	if text != "Let me see." || got.OutputText() != text || len(got.Output) != 4 ||
		got.Output[0].AsReasoning().Summary[0].Text != "Hm." || got.Output[0].AsReasoning().EncryptedContent == "" ||
		got.Output[2].AsFunctionCall().Arguments != `{"a":1}` || got.Usage.InputTokens != 3 {
		t.Errorf("got %q and %s", text, got.RawJSON())
	}
}

func TestBody(t *testing.T) {
	const hi = `{"model":"gpt-5.5","input":[{"role":"user","content":"<hi>"}]`
	const end = `"include":["reasoning.encrypted_content"],"store":false,"stream":true}`
	tests := []struct {
		name string
		req  func(*model.Request)
		want string
	}{
		{"plain", func(r *model.Request) {
			r.Text = berth.TextConfig{Verbosity: "medium", Format: json.RawMessage(`{"type":"text"}`)}
		}, hi + `,` + end},
		{"a limit below the minimum", func(r *model.Request) {
			r.MaxOutputTokens = 3
		}, hi + `,"max_output_tokens":16,` + end},
		{"probabilities", func(r *model.Request) {
			r.Logprobs = true
		}, hi + `,"include":["reasoning.encrypted_content","message.output_text.logprobs"],"store":false,"stream":true}`},
		{"a function without parameters", func(r *model.Request) { r.Tools = []berth.FunctionTool{{Name: "f"}} },
			hi + `,"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{}},"strict":false}],` + end},
		{"a function without strict", func(r *model.Request) {
			r.Tools = []berth.FunctionTool{{Name: "f", Parameters: json.RawMessage(`{"type":"object"}`)}}
		}, hi + `,"tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":null}],` + end},
		{"no items", func(r *model.Request) { r.Items = []berth.Item{} }, `{"model":"gpt-5.5","input":[],` + end},
		{"a choice without tools", func(r *model.Request) {
			r.ToolChoice.Mode, r.ParallelToolCalls = "none", false
		}, hi + `,` + end},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := &model.Request{Items: []berth.Item{raw(`{"role":"user","content":"<hi>"}`)}, ParallelToolCalls: true}
			tt.req(req)
			sent, _ := received(t, req)
			if diff := cmp.Diff(tt.want, strings.NewReplacer(`\u003c`, "<", `\u003e`,
				">").Replace(strings.TrimSpace(string(sent.Body)))); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

// Items are sent unchanged, even those of types unknown to Berth, unless the server
// would refuse them.
func TestItemsSent(t *testing.T) {
	encrypted := func(t *testing.T) berth.Item { // as sent by the double
		p, _ := open(t, modeltest.Always(modeltest.Reply(modeltest.Sealed{}, model.Finish{Reason: model.FinishStop})))
		a, err := modeltest.Collect(t, p, &model.Request{Model: "m",
			Items: []berth.Item{raw(`{"role":"user","content":"hi"}`)}})
		if err != nil || len(a.Items) != 1 {
			t.Fatal(err, a.Items)
		}
		it, err := a.Items[0].With(map[string]any{"id": "rs_1"})
		if err != nil {
			t.Fatal(err)
		}
		return it
	}(t)
	tests := []struct{ name, in, want string }{
		{"a message that cites",
			`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[{"type":"container_file_citation","container_id":"cntr_1","file_id":"cfile_1","filename":"a","start_index":0,"end_index":1}],"logprobs":[]}]}`,
			`{"content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"a"}],"role":"assistant","type":"message"}`},
		{"a message with unknown fields",
			`{"id":"msg_1","type":"message","role":"assistant","status":"completed","phase":"commentary","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]}]}`, ""},
		{"an item of another type", `{"type":"compaction","id":"cmp_1","encrypted_content":"x"}`, ""},
		{"an id in another form than OpenAI's", `{"id":"m1","role":"user","content":"a"}`,
			`{"content":"a","role":"user"}`},
		{"a participant", `{"role":"user","name":"ann","content":"a"}`,
			`{"content":[{"type":"input_text","text":"ann:"},{"type":"input_text","text":"a"}],"role":"user"}`},
	}
	for _, tt := range tests {
		want := tt.want
		if want == "" {
			want = tt.in
		}
		if _, body := received(t, &model.Request{Items: []berth.Item{raw(tt.in)}}); string(
			body["input"]) != "["+want+"]" {
			t.Errorf("%s:\ngot  %s\nwant [%s]", tt.name, body["input"], want)
		}
	}
	call, output := raw(`{"id":"sh_1","type":"function_call","call_id":"c1","name":"f","arguments":"{}"}`),
		raw(`{"type":"function_call_output","call_id":"c1","output":"1"}`)
	_, body := received(t,
		&model.Request{Items: []berth.Item{encrypted, call, output, encrypted, raw(`{"role":"user","content":"a"}`),
			encrypted}})
	want := `[` + string(encrypted.Raw()) + `,{"arguments":"{}","call_id":"c1","name":"f","type":"function_call"},` +
		string(output.Raw()) + `,{"role":"user","content":"a"}]`
	if diff := cmp.Diff(want, string(body["input"])); diff != "" {
		t.Errorf("reasoning that leads to something (-want +got):\n%s", diff)
	}
}

// Reasoning text is sent only to servers that want it; OpenAI's does not.
func TestOpenReasoning(t *testing.T) {
	var bodies []string
	transport := roundTrip(func(r *http.Request) (*http.Response, error) {
		var body struct{ Input json.RawMessage }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return nil, err
		}
		bodies = append(bodies, string(body.Input))
		return &http.Response{StatusCode: http.StatusTeapot, Body: http.NoBody}, nil
	})
	items := []berth.Item{raw(
		`{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]}`),
		raw(`{"role":"assistant","content":"a"}`)}
	for _, which := range []string{"", "encrypted", "all"} {
		p, err := openai.New(openai.Options{Options: upstream.Options{HTTPClient: &http.Client{Transport: transport}},
			Reasoning: which})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = modeltest.Collect(t, p, &model.Request{Model: "m", Items: items})
	}
	if len(bodies) != 3 || strings.Contains(bodies[0]+bodies[1], "Hm.") || !strings.Contains(bodies[2], "Hm.") {
		t.Errorf("sent %q", bodies)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Fields and items unknown to Berth pass through.
func TestItemsReceived(t *testing.T) {
	const (
		message = `{"id":"msg_9","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[{"type":"url_citation"}],"logprobs":[]}],"novelty":1}`
		novelty = `{"id":"nv_9","type":"novelty","colour":"red"}`
	)
	event := func(kind, fields string) modeltest.Raw {
		return modeltest.Raw(`event: ` + kind + "\ndata: " + `{"type":"` + kind + `",` + fields + "}\n\n")
	}
	p, _ := open(t, modeltest.Always(modeltest.Reply(
		event("response.output_item.added",
			`"output_index":0,"item":{"id":"msg_9","type":"message","status":"in_progress","role":"assistant","content":[],"phase":"commentary"}`),
		event("response.output_text.delta", `"output_index":0,"item_id":"msg_9","delta":"a"`),
		event("response.output_item.done", `"output_index":0,"item":`+message),
		event("response.output_item.added", `"output_index":1,"item":{"id":"nv_9","type":"novelty"}`),
		event("response.output_item.done", `"output_index":1,"item":`+novelty),
		event("response.completed", `"response":{"model":"m-1","usage":{"input_tokens":3,"total_tokens":3}}`))))
	var got []model.Delta
	for d, err := range p.Stream(t.Context(), &model.Request{Model: "m",
		Items: []berth.Item{raw(`{"role":"user","content":"hi"}`)}}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, d)
	}
	if len(got) != 4 || !cmp.Equal(got[0], model.Text{Text: "a", Phase: "commentary"}) {
		t.Fatalf("got %+v", got)
	}
	whole, other := got[1].(model.Item), got[2].(model.Item)
	var fields map[string]json.RawMessage
	if err := whole.Item.Decode(&fields); err != nil || !whole.Ends || string(fields["novelty"]) != "1" ||
		fields["id"] != nil || !strings.Contains(string(fields["content"]), "url_citation") {
		t.Errorf("the message: got %s, %v", whole.Item.Raw(), whole.Ends)
	}
	if other.Ends || string(other.Item.Raw()) != novelty {
		t.Errorf("the item of another type: got %s", other.Item.Raw())
	}
}

// Keys of the environment belong to another upstream.
func TestHeaders(t *testing.T) {
	for _, name := range []string{"API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "BASE_URL"} {
		t.Setenv("OPENAI_"+name, "http://secret-of-the-environment")
	}
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Env: secret-of-the-environment")
	double := modeltest.NewOpenAIServer(t, ok)
	p, err := openai.New(openai.Options{Options: upstream.Options{BaseURL: double.URL +
		"/", Headers: map[string]string{"X-Title": "Berth"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := modeltest.Collect(t, p, &model.Request{Model: "m",
		Items: []berth.Item{raw(`{"role":"user","content":"hi"}`)}}); err != nil {
		t.Fatal(err)
	}
	for k, v := range double.Requests()[0].Header {
		if k == "Authorization" || strings.Contains(strings.Join(v, ""), "secret-of") {
			t.Errorf("without a key: sent %s: %s", k, v)
		}
	}
	if got := double.Requests()[0].Header.Get("X-Title"); got != "Berth" {
		t.Errorf("X-Title: got %q", got)
	}
	if _, err := openai.New(openai.Options{Reasoning: "much"}); err == nil {
		t.Error("an unknown value was accepted")
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
}

func FuzzHistory(f *testing.F) {
	double := modeltest.NewOpenAIHandler(modeltest.Always(modeltest.Reply(model.Text{Text: "ok"},
		model.Finish{Reason: model.FinishStop})))
	p, err := openai.New(openai.Options{Options: upstream.Options{BaseURL: "http://double/v1",
		HTTPClient: &http.Client{Transport: modeltest.Direct{Handler: double}}}})
	if err != nil {
		f.Fatal(err)
	}
	modeltest.FuzzHistory(f, p, double.Double)
}
