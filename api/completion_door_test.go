package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/completions"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
)

var padding = regexp.MustCompile(`,"obfuscation":"[A-Z2-7]{1,16}"`)

func TestCompletionFrames(t *testing.T) {
	t.Parallel()
	h, _ := playing(t, turn(model.Text{Text: "Hello."}, stopped))
	resp := h.send(t.Context(), "POST", "/v1/chat/completions",
		`{`+asking+`,"stream":true,"stream_options":{"include_usage":true}}`)
	raw, err := io.ReadAll(resp.Body)
	check(t, err)
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
		t.Errorf("got Content-Type %q", got)
	}
	got := masked(string(raw))
	if n := len(padding.FindAllString(got, -1)); n != 3 {
		t.Errorf("%d chunks are padded, want 3:\n%s", n, got)
	}
	const head = `data: {"id":"C","object":"chat.completion.chunk","created":1,"model":"played","service_tier":"default","system_fingerprint":"F","choices":[`
	want := head + `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}

` + head + `{"index":0,"delta":{"content":"Hello."},"logprobs":null,"finish_reason":null}],"usage":null}

` + head + `{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}

` + head + `],` + usageEnd + `}

data: [DONE]

`
	if diff := cmp.Diff(want, padding.ReplaceAllString(got, "")); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
}

// Each choice is a run of its own.
func TestCompletionChoices(t *testing.T) {
	t.Parallel()
	h, m := playing(t, turn(model.Text{Text: "a"}, model.Text{Text: "b"}, stopped))
	o := h.call(200, "POST", "/v1/chat/completions", `{`+asking+`,"n":3}`)
	for i := range 3 {
		if o.at("choices", i, "index") != float64(i) || o.at("choices", i, "message", "content") != "ab" {
			t.Errorf("choice %d: got %v", i, o.at("choices", i))
		}
	}
	if got := o.at("usage", "total_tokens"); got != 27.0 || len(m.asked) != 3 {
		t.Errorf("got %v tokens in %d runs, want 27 in 3", got, len(m.asked))
	}
	_, body := h.complete(asking + `,"n":2,"stream":true,"stream_options":{"include_obfuscation":false}`)
	texts := map[int]string{}
	ended := 0
	for _, line := range strings.Split(choicesOf(t, body), "\n") {
		var c struct {
			Index  int
			Delta  struct{ Content string }
			Finish string `json:"finish_reason"`
		}
		check(t, json.Unmarshal([]byte(line), &c))
		texts[c.Index] += c.Delta.Content
		if c.Finish == "stop" {
			ended++
		}
	}
	if diff := cmp.Diff(map[int]string{0: "ab", 1: "ab"}, texts); diff != "" || ended != 2 {
		t.Errorf("%d choices ended; texts (-want +got):\n%s", ended, diff)
	}
}

// The parameters of a request reach the model.
func TestCompletionParameters(t *testing.T) {
	t.Parallel()
	h, m := playing(t, turn(stopped))
	h.call(200, "POST", "/v1/chat/completions", `{"model":"played","messages":[{"role":"system","content":"S"},{"role":"user","name":"ann","content":"U in JSON"}],
		"stop":["x"],"seed":5,"presence_penalty":1,"frequency_penalty":0.5,"logit_bias":{"3":-1},"max_tokens":9,"temperature":0.5,"top_p":0.5,"logprobs":true,"top_logprobs":1,
		"reasoning_effort":"low","verbosity":"high","user":"u","response_format":{"type":"json_object"},"parallel_tool_calls":false,`+weather+`,"tool_choice":{"type":"custom","custom":{"name":"poem"}}}`)
	got := m.asked[0]
	half, one, seed := 0.5, 1.0, int64(5)
	want := berth.Sampling{Stop: []string{"x"}, Seed: &seed, PresencePenalty: &one, FrequencyPenalty: &half,
		LogitBias: map[string]int{"3": -1}}
	if diff := cmp.Diff(want, got.Sampling); diff != "" {
		t.Errorf("sampling (-want +got):\n%s", diff)
	}
	if got.MaxOutputTokens != 9 || *got.Temperature != 0.5 || *got.TopP != 0.5 || !got.Logprobs ||
		*got.TopLogprobs != 1 || *got.Reasoning.Effort != "low" ||
		got.Text.Verbosity != "high" || string(got.Text.Format) != `{"type":"json_object"}` || got.User != "u" ||
		got.ParallelToolCalls {
		t.Errorf("got %+v", got)
	}
	if want := (model.ToolChoice{Mode: "function", Name: "poem"}); got.ToolChoice != want || len(got.Tools) != 2 {
		t.Errorf("got choice %+v of %+v", got.ToolChoice, got.Tools)
	}
	var who struct{ Name string }
	check(t, got.Items[1].Decode(&who))
	if got.Items[0].Role() != "system" || got.Items[1].Role() != "user" || who.Name != "ann" {
		t.Errorf("got items %s and %s", got.Items[0].Raw(), got.Items[1].Raw())
	}
}

// Errors of the engine and of the model are about the completion.
func TestCompletionErrors(t *testing.T) {
	t.Parallel()
	h, _ := playing(t, turn(&berth.Error{Code: berth.CodeNotFound, Wire: "model_not_found", Param: "model",
		Message: "Gone."}))
	tests := []struct {
		status      int
		fields      string
		param, code any
	}{
		{404, `"model":"none","messages":[{"role":"user","content":"hi"}]`, "model", "model_not_found"},
		{404, asking, "model", "model_not_found"},
		{404, asking + `,"stream":true`, "model", "model_not_found"},
		{400, asking +
			`,"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}]`,
			"tools[1].function.name", "invalid_value"},
		{400, asking + `,"functions":[{"name":"f"},{"name":"f"}]`, "functions[1].name", "invalid_value"},
		{400, asking + `,` + weather + `,"tool_choice":{"type":"function","function":{"name":"none"}}`, "tool_choice",
			nil},
		{404, asking +
			`,"tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"cntr_none"}}]`,
			"tools[0].environment", nil},
	}
	for _, tt := range tests {
		o := h.call(tt.status, "POST", "/v1/chat/completions", "{"+tt.fields+"}")
		if o.at("error", "param") != tt.param || o.at("error", "code") != tt.code {
			t.Errorf("%s: got %v, want %v of %v", tt.fields, o["error"], tt.code, tt.param)
		}
	}
	h.call(404, "POST", "/v1/completions", `{"model":"played","prompt":"hi"}`)
}

// The answer to a failed request that has run tools forbids an automatic retry.
func TestCompletionIsNotRetried(t *testing.T) {
	t.Parallel()
	run := turn(model.Call{ID: "call_a", Name: "shell", Arguments: `{"commands":["true"]}`}, model.Finish{})
	for want, turns := range map[string][][]any{"": {turn(lasting)}, "false": {run, turn(lasting)}} {
		for _, stream := range []bool{false, true} {
			h, _ := playing(t, turns...)
			resp := h.send(t.Context(), "POST", "/v1/chat/completions",
				fmt.Sprintf(`{%s,"stream":%t,"tools":[{"type":"shell"}]}`, asking, stream))
			if got := resp.Header.Get("x-should-retry"); resp.StatusCode != 400 || got != want {
				t.Errorf("%d turns, stream %t: got %d, x-should-retry %q, want 400, %q", len(turns), stream,
					resp.StatusCode, got, want)
			}
		}
	}
}

// A stream sends its header with the first text, or with a keep-alive if that takes long.
func TestCompletionSilence(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(o *api.Options) { o.Exchange.Limits.KeepAlive = time.Millisecond })
	resp := h.send(t.Context(), "POST", "/v1/chat/completions",
		`{"model":"vendor/fed","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	lines := bufio.NewReader(resp.Body)
	first, err := lines.ReadString('\n')
	check(t, err)
	if resp.StatusCode != 200 || first != ": keep-alive\n" {
		t.Errorf("got %d and %q", resp.StatusCode, first)
	}
	h.fed.words <- "word"
	h.fed.words <- ""
	rest, err := io.ReadAll(lines)
	check(t, err)
	if !strings.Contains(string(rest), `"content":"word"`) || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("got %s", rest)
	}
}

// A waitingModel answers with a word and waits for the end of its context.
type waitingModel struct{ begun, left chan struct{} }

func newWaitingModel() waitingModel {
	return waitingModel{make(chan struct{}, 2), make(chan struct{}, 2)}
}

func (m waitingModel) Stream(ctx context.Context, _ *model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		if yield(model.Text{Text: "word"}, nil) {
			m.begun <- struct{}{}
			<-ctx.Done()
			m.left <- struct{}{}
			yield(nil, context.Cause(ctx))
		}
	}
}

// A client that disconnects ends the runs of all choices.
func TestCompletionLeave(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		m := newWaitingModel()
		h := newHouse(t, nil, model.Rule{Match: "waiting", Provider: m})
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			<-m.begun
			<-m.begun
			leave()
		}()
		req, err := http.NewRequestWithContext(ctx, "POST", h.url+"/v1/chat/completions",
			strings.NewReader(
				fmt.Sprintf(`{"model":"waiting","stream":%t,"n":2,"messages":[{"role":"user","content":"hi"}]}`,
					stream)))
		check(t, err)
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("stream %t: got %v", stream, err)
		}
		for range 2 {
			select {
			case <-m.left:
			case <-time.After(20 * time.Second):
				t.Fatal("a run continues after its client has disconnected")
			}
		}
	}
}

// If the server stops, the stream ends with an error that states it.
func TestCompletionStop(t *testing.T) {
	t.Parallel()
	m := newWaitingModel()
	h := newHouse(t, nil, model.Rule{Match: "waiting", Provider: m})
	resp := h.send(t.Context(), "POST", "/v1/chat/completions",
		`{"model":"waiting","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	lines := bufio.NewReader(resp.Body)
	_, err := lines.ReadString('\n')
	check(t, err)
	check(t, h.engine.Close(t.Context()))
	h.stop(errors.New("the server is stopping"))
	rest, err := io.ReadAll(lines)
	check(t, err)
	if !strings.HasSuffix(string(rest),
		`data: {"error":{"message":"The server is stopping. Send the request again in a moment.","type":"server_error","param":null,"code":"unavailable"}}`+"\n\n") {
		t.Errorf("got %s", rest)
	}
}

// A completion that cannot be stored is not sent as finished.
func TestCompletionIsSavedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	m := &playedModel{turns: [][]any{turn(model.Text{Text: "a"}, stopped)}}
	full := errors.New("the disk is full")
	h := newHouse(t, func(o *api.Options) {
		o.Rooms.Completions = completions.New(brokenObjects{storeOf(o), full})
	}, model.Rule{Match: "played", Provider: m})
	h.call(500, "POST", "/v1/chat/completions", `{`+asking+`,"store":true}`)
	_, body := h.complete(asking + `,"store":true,"stream":true`)
	if strings.Contains(body, `"finish_reason":"stop"`) || strings.Contains(body, "[DONE]") || !strings.Contains(body,
		`"message":"The server had an error`) {
		t.Errorf("got %s", body)
	}
	h.call(200, "POST", "/v1/chat/completions", `{`+asking+`}`)
}

type brokenObjects struct {
	store.Objects
	err error
}

func (b brokenObjects) CreateObjects(context.Context, berth.ProjectID, ...*store.Object) error {
	return b.err
}

func TestStoredCompletions(t *testing.T) {
	t.Parallel()
	h, _ := playing(t, turn(model.Text{Text: "a"}, stopped))
	h.key("mine", "proj_mine")
	h.call(200, "POST", "/v1/chat/completions", `{`+asking+`}`) // not stored by default
	var ids []string
	for i := range 3 {
		o := h.call(200, "POST", "/v1/chat/completions",
			fmt.Sprintf(`{%s,"store":true,"seed":4,"metadata":{"n":"%d","of":"3"}}`, asking, i))
		ids = append(ids, o.id())
	}
	resp := h.send(t.Context(), "POST", "/v1/chat/completions",
		`{"model":"scripted","stream":true,"store":true,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}],"name":"ann"},{"role":"assistant","refusal":"R"},{"role":"user","content":"again"}]}`)
	chunk, err := bufio.NewReader(resp.Body).ReadString('\n')
	check(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	check(t, err)
	var streamed struct{ ID string }
	check(t, json.Unmarshal([]byte(strings.TrimPrefix(chunk, "data: ")), &streamed))
	ids = append(ids, streamed.ID)

	kept, err := json.Marshal(h.call(200, "GET", "/v1/chat/completions/"+ids[0], nil))
	check(t, err)
	want := `{"choices":[{"finish_reason":"stop","index":0,"logprobs":null,"message":{"annotations":[],"content":"a","refusal":null,"role":"assistant"}}],"created":1,"frequency_penalty":0,` +
		`"id":"C","input_user":null,"metadata":{"n":"0","of":"3"},"model":"played","object":"chat.completion","presence_penalty":0,"request_id":"R","response_format":null,"seed":4,` +
		`"service_tier":"default","system_fingerprint":"F","temperature":1,"tool_choice":null,"tools":null,"top_p":1,` +
		`"usage":{"completion_tokens":2,"completion_tokens_details":{"accepted_prediction_tokens":0,"audio_tokens":0,"reasoning_tokens":1,"rejected_prediction_tokens":0},` +
		`"prompt_tokens":7,"prompt_tokens_details":{"audio_tokens":0,"cached_tokens":3},"total_tokens":9}}`
	if diff := cmp.Diff(want, masked(string(kept))); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}

	listed := func(query string) []string {
		t.Helper()
		o := h.call(200, "GET", "/v1/chat/completions"+query, nil)
		var got []string
		for i := range o["data"].([]any) {
			got = append(got, o.at("data", i, "id").(string))
		}
		if n := len(got); n > 0 && (o["first_id"] != got[0] || o["last_id"] != got[n-1]) {
			t.Errorf("%s: got first_id %v, last_id %v", query, o["first_id"], o["last_id"])
		}
		return append(got, fmt.Sprint(o["has_more"]))
	}
	for query, want := range map[string][]string{
		"":                                    {ids[0], ids[1], ids[2], ids[3], "false"},
		"?order=desc&limit=2":                 {ids[3], ids[2], "true"},
		"?limit=1&after=" + ids[0]:            {ids[1], "true"},
		"?model=played&limit=3":               {ids[0], ids[1], ids[2], "false"},
		"?model=scripted":                     {ids[3], "false"},
		"?metadata[n]=1":                      {ids[1], "false"},
		"?metadata[of]=3&limit=2":             {ids[0], ids[1], "true"},
		"?metadata[of]=3&metadata[n]=2":       {ids[2], "false"},
		"?metadata[none]=":                    {"false"},
		"?metadata%5Bof%5D=3&after=" + ids[1]: {ids[2], "false"},
	} {
		if diff := cmp.Diff(want, listed(query)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	h.call(400, "GET", "/v1/chat/completions?after=chatcmpl-none", nil)
	h.call(400, "GET", "/v1/chat/completions?limit=0", nil)
	h.call(400, "GET", "/v1/chat/completions?other=1", nil)

	o := h.call(200, "POST", "/v1/chat/completions/"+ids[1], `{"metadata":{"n":"one"}}`)
	if o.at("metadata", "n") != "one" || o.at("metadata", "of") != nil || o.at("choices", 0, "message",
		"content") != "a" {
		t.Errorf("updated: got %v", o)
	}
	if got := listed("?metadata[n]=one"); !slices.Equal(got, []string{ids[1], "false"}) {
		t.Errorf("after the update: got %v", got)
	}

	messages := "/v1/chat/completions/" + ids[3] + "/messages"
	o = h.call(200, "GET", messages+"?limit=2", nil)
	got, err := json.Marshal(o["data"])
	check(t, err)
	wantMessages := strings.ReplaceAll(
		`[{"content":null,"content_parts":[{"text":"hi","type":"text"}],"id":"C-0","name":"ann","refusal":null,"role":"user"},`+
			`{"content":null,"content_parts":null,"id":"C-1","name":null,"refusal":"R","role":"assistant"}]`, "C-",
		ids[3]+"-")
	if diff := cmp.Diff(wantMessages, string(got)); diff != "" || o["has_more"] != true {
		t.Errorf("messages, more %v (-want +got):\n%s", o["has_more"], diff)
	}
	o = h.call(200, "GET", messages+"?after="+ids[3]+"-1", nil)
	if o.at("data", 0, "content") != "again" || o["has_more"] != false {
		t.Errorf("the last page: got %v", o)
	}

	h.key("theirs", "proj_theirs")
	for _, id := range []string{ids[0], "chatcmpl-none"} {
		var answers []string
		for _, call := range [][2]string{{"GET", ""}, {"POST", ""}, {"DELETE", ""}, {"GET", "/messages"}} {
			o := h.call(404, call[0], "/v1/chat/completions/"+id+call[1], `{"metadata":{}}`)
			answers = append(answers, o.at("error", "message").(string))
		}
		if want := "Chat completion with id '" + id + "' not found."; !slices.Equal(answers, []string{want, want, want,
			want}) {
			t.Errorf("%s: got %q", id, answers)
		}
	}
	if got := listed(""); !slices.Equal(got, []string{"false"}) {
		t.Errorf("another project lists %v", got)
	}

	h.token = "mine"
	o = h.call(200, "DELETE", "/v1/chat/completions/"+ids[3], nil)
	if o.id() != ids[3] || o["object"] != "chat.completion.deleted" || o["deleted"] != true {
		t.Errorf("deleted: got %v", o)
	}
	h.call(404, "GET", "/v1/chat/completions/"+ids[3], nil)
	h.call(404, "GET", messages, nil)
}
