package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// answerWords is the number of words, and of deltas, in an answer of the model.
const answerWords = 32

// Phrases of a user's message that change what the model does.
const (
	countTurns = "How many turns?" // the first word of the answer is the number of user messages
	runCode    = "Run code."       // call the first tool; then the first word is its output, if that is codeOutput
)

var plainText = strings.Repeat("word ", answerWords)

// codeOutput is what the code of a call prints.
const codeOutput = "42378" // 6*7*1009

// newModel starts a model that answers immediately and in one write. It speaks Chat Completions
// and Responses, holds no state, and lists one model, "m".
func newModel() *httptest.Server {
	mux := http.NewServeMux()
	mux.Handle("POST /v1/chat/completions", &dialect{ran: `"tool_call_id"`, answer: completion})
	mux.Handle("POST /v1/responses", &dialect{ran: `"function_call_output"`, answer: response})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"bench"}]}`)
	})
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	return httptest.NewServer(mux)
}

// A prompt is what the model reads of a request.
type prompt struct {
	stream bool
	text   string // of the answer, after its call
	tool   string // the tool to call; empty for none
	args   string // of the call, JSON
}

// read reads a request. ran is a text that is in the request if a tool has run.
func read(r *http.Request, ran string) prompt {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	p := prompt{stream: hasField(body, `"stream":`, "true"), text: plainText}
	switch {
	case bytes.Contains(body, []byte(countTurns)):
		p.text = strconv.Itoa(bytes.Count(body, []byte(countTurns))) + " " + p.text
	case bytes.Contains(body, []byte(runCode)) && bytes.Contains(body, []byte(ran)):
		if bytes.Contains(body, []byte(codeOutput)) {
			p.text = codeOutput + " " + p.text
		}
	case bytes.Contains(body, []byte(runCode)):
		p.tool, p.args = firstTool(body)
	}
	return p
}

// hasField reports whether JSON has a field, with or without a space after the colon.
func hasField(body []byte, name, value string) bool {
	return bytes.Contains(body, []byte(name+value)) || bytes.Contains(body, []byte(name+" "+value))
}

// firstTool returns the name of the first tool of a request in either dialect, and the
// arguments that make it print codeOutput.
func firstTool(body []byte) (name, args string) {
	var req struct {
		Tools []struct {
			Type, Name string
			Function   struct{ Name string }
		}
	}
	if json.Unmarshal(body, &req) != nil || len(req.Tools) == 0 {
		return "", ""
	}
	name = req.Tools[0].Name + req.Tools[0].Function.Name
	if strings.Contains(name, "shell") {
		return name, `{"commands":["echo $((6*7*1009))"]}`
	}
	return name, `{"code":"print(6*7*1009)"}`
}

// A dialect answers prompts. It makes each answer once, so that the model takes little time; a
// "#" in it is replaced by the number of the request, which makes ids unique.
type dialect struct {
	ran    string // is in a request if a tool has run
	answer func(prompt) []byte
	made   sync.Map // answers by prompt
	n      atomic.Int64
}

func (d *dialect) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := read(r, d.ran)
	answer, ok := d.made.Load(p)
	if !ok {
		answer, _ = d.made.LoadOrStore(p, d.answer(p))
	}
	kind := "application/json"
	if p.stream {
		kind = "text/event-stream"
	}
	w.Header().Set("Content-Type", kind)
	w.Write(bytes.ReplaceAll(answer.([]byte), []byte("#"), strconv.AppendInt(nil, d.n.Add(1), 10)))
}

// completion returns an answer in the dialect Chat Completions.
func completion(p prompt) []byte {
	usage := fmt.Sprintf(`{"prompt_tokens":5,"completion_tokens":%d,"total_tokens":%d}`, answerWords, answerWords+5)
	call := fmt.Sprintf(
		`{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_#","type":"function","function":{"name":%q,"arguments":%q}}]}`,
		p.tool, p.args)
	if !p.stream {
		message, reason := fmt.Sprintf(`{"role":"assistant","content":%q}`, p.text), "stop"
		if p.tool != "" {
			message, reason = call, "tool_calls"
		}
		return fmt.Appendf(nil,
			`{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":%s,"finish_reason":%q}],"usage":%s}`,
			message, reason, usage)
	}
	var b bytes.Buffer
	chunk := func(choices, usage string) {
		fmt.Fprintf(&b,
			`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":%s,"usage":%s}`+"\n\n",
			choices, usage)
	}
	reason := "stop"
	if p.tool != "" {
		chunk(`[{"index":0,"delta":`+call+`,"finish_reason":null}]`, "null")
		reason = "tool_calls"
	} else {
		for word := range words(p.text) {
			chunk(fmt.Sprintf(`[{"index":0,"delta":{"content":%q},"finish_reason":null}]`, word), "null")
		}
	}
	chunk(fmt.Sprintf(`[{"index":0,"delta":{},"finish_reason":%q}]`, reason), "null")
	chunk(`[]`, usage)
	b.WriteString("data: [DONE]\n\n")
	return b.Bytes()
}

// words splits a text into its deltas.
func words(text string) iter.Seq[string] {
	return strings.SplitAfterSeq(strings.TrimSuffix(text, " "), " ")
}

// response returns an answer in the dialect Responses.
func response(p prompt) []byte {
	item := fmt.Sprintf(
		`{"id":"msg_#","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":%q,"annotations":[]}]}`,
		p.text)
	if p.tool != "" {
		item = fmt.Sprintf(
			`{"id":"fc_#","type":"function_call","call_id":"call_#","status":"completed","name":%q,"arguments":%q}`,
			p.tool, p.args)
	}
	usage := fmt.Sprintf(
		`{"input_tokens":5,"input_tokens_details":{"cached_tokens":0},"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":%d}`,
		answerWords, answerWords+5)
	whole := func(status, output, usage string) string {
		return fmt.Sprintf(
			`{"id":"resp_#","object":"response","created_at":1,"status":%q,"model":"m","output":[%s],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"error":null,"incomplete_details":null,"instructions":null,"metadata":{},"temperature":1,"top_p":1,"usage":%s}`,
			status, output, usage)
	}
	if !p.stream {
		return []byte(whole("completed", item, usage))
	}
	var b bytes.Buffer
	n := 0
	event := func(kind, fields string) {
		fmt.Fprintf(&b, "event: %s\ndata: {\"type\":%q,\"sequence_number\":%d,%s}\n\n", kind, kind, n, fields)
		n++
	}
	event("response.created", `"response":`+whole("in_progress", "", "null"))
	if p.tool != "" {
		at := `"item_id":"fc_#","output_index":0,`
		event("response.output_item.added",
			fmt.Sprintf(
				`"output_index":0,"item":{"id":"fc_#","type":"function_call","call_id":"call_#","status":"in_progress","name":%q,"arguments":""}`,
				p.tool))
		event("response.function_call_arguments.delta", at+fmt.Sprintf(`"delta":%q`, p.args))
		event("response.function_call_arguments.done", at+fmt.Sprintf(`"name":%q,"arguments":%q`, p.tool, p.args))
	} else {
		at := `"item_id":"msg_#","output_index":0,"content_index":0,`
		event("response.output_item.added",
			`"output_index":0,"item":{"id":"msg_#","type":"message","role":"assistant","status":"in_progress","content":[]}`)
		event("response.content_part.added", at+`"part":{"type":"output_text","text":"","annotations":[]}`)
		for word := range words(p.text) {
			event("response.output_text.delta", at+fmt.Sprintf(`"delta":%q,"logprobs":[]`, word))
		}
		event("response.output_text.done", at+fmt.Sprintf(`"text":%q,"logprobs":[]`, p.text))
		event("response.content_part.done", at+fmt.Sprintf(`"part":{"type":"output_text","text":%q,"annotations":[]}`,
			p.text))
	}
	event("response.output_item.done", `"output_index":0,"item":`+item)
	event("response.completed", `"response":`+whole("completed", item, usage))
	return b.Bytes()
}
