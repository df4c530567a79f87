package openai

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/upstream"
)

// deltas decodes an answer and returns one line for each delta.
func deltas(t *testing.T, in io.Reader) (lines []string, err error) {
	t.Helper()
	a := newAnswer(&model.Request{Model: "m"}, false, slog.New(slog.DiscardHandler))
	for d, e := range upstream.Read(in, a, a.log) {
		if err != nil {
			t.Fatal("something follows an error")
		}
		if err = e; e != nil {
			continue
		}
		switch d := d.(type) {
		case model.Text:
			lines = append(lines, "text "+d.Phase+d.Text)
		case model.Thought:
			lines = append(lines, fmt.Sprintf("thought %v %q", d.Summary, d.Text))
		case model.Refusal:
			lines = append(lines, "refusal "+d.Text)
		case model.Call:
			lines = append(lines, fmt.Sprintf("%d %s %s %s", d.Index, d.ID, d.Name, d.Arguments))
		case model.Item:
			lines = append(lines, fmt.Sprintf("item %v %s", d.Ends, d.Item.Raw()))
		case model.Finish:
			lines = append(lines, fmt.Sprintf("finish %s %s %d", d.Reason, d.Model, d.Usage.TotalTokens))
		}
	}
	return lines, err
}

// stream returns a stream of events: type, "|", fields.
func stream(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		kind, fields, _ := strings.Cut(e, "|")
		if fields != "" {
			fields = "," + fields
		}
		fmt.Fprintf(&b, "event: response.%s\ndata: {\"type\":\"response.%s\"%s}\n\n", kind, kind, fields)
	}
	return b.String()
}

const (
	created = `created|"response":{"model":"m-1"}`
	message = `output_item.added|"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}`
	over    = `completed|"response":{"model":"m-1","usage":{"total_tokens":7}}`
	finish  = "finish stop m-1 7"
)

func done(item string) string { return `output_item.done|"output_index":0,"item":` + item }

func TestStreams(t *testing.T) {
	const whole = `{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]}]}`
	thought := func(events ...string) []string {
		return append(append([]string{created,
			`output_item.added|"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}`}, events...),
			done(`{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"x"}`), over)
	}
	call := func(arguments string, events ...string) []string {
		return append(append([]string{created,
			`output_item.added|"output_index":0,"item":{"type":"function_call","call_id":"c1","name":"f","arguments":"` + arguments + `"}`},
			events...),
			done(`{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}`), over)
	}
	tests := []struct {
		name string
		in   []string
		want []string
	}{
		{"text", []string{created, "in_progress", message, `content_part.added|"output_index":0`,
			`output_text.delta|"output_index":0,"delta":"a","logprobs":[]`,
			`output_text.done|"output_index":0,"text":"a"`, done(whole), over}, []string{"text a", finish}},
		{"text without a delta", []string{created, message, done(whole), over}, []string{"text a", finish}},
		{"a refusal without a delta",
			[]string{created, message,
				done(`{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"No."}]}`), over},
			[]string{"refusal No.", finish}},
		{"a summary in parts", thought(`reasoning_summary_part.added|"output_index":0,"summary_index":0`,
			`reasoning_summary_text.delta|"output_index":0,"delta":"a"`,
			`reasoning_summary_part.added|"output_index":0,"summary_index":1`,
			`reasoning_summary_text.delta|"output_index":0,"delta":"b"`),
			[]string{`thought true "a"`, `thought true "\n\n"`, `thought true "b"`,
				`item true {"encrypted_content":"x","summary":[],"type":"reasoning"}`, finish}},
		{"a visible thought", thought(`reasoning_text.delta|"output_index":0,"delta":"a"`),
			[]string{`thought false "a"`, `item true {"encrypted_content":"x","summary":[],"type":"reasoning"}`,
				finish}},
		{"a hidden thought", thought(), []string{`item false {"encrypted_content":"x","summary":[],"type":"reasoning"}`,
			finish}},
		{"a call in pieces", call("", `function_call_arguments.delta|"output_index":0,"delta":"{"`,
			`function_call_arguments.delta|"output_index":0,"delta":"}"`), []string{"0 c1 f ", "0   {", "0   }",
			finish}},
		{"a call complete at its end", call(""), []string{"0 c1 f ", "0   {}", finish}},
		{"a call complete at its start", call("{}"), []string{"0 c1 f {}", finish}},
		{"events without content", []string{created, `weather`, `weather|"output_index":3,"delta":7`, over},
			[]string{finish}},
		{"fields of other types",
			[]string{created, message,
				`output_text.delta|"output_index":0,"delta":"a","sequence_number":"x","logprobs":7`, over},
			[]string{"text a", finish}},
		{"the output limit",
			[]string{created, `incomplete|"response":{"incomplete_details":{"reason":"max_output_tokens"}}`},
			[]string{"finish length m-1 0"}},
		{"a filter", []string{created, `incomplete|"response":{"incomplete_details":{"reason":"content_filter"}}`},
			[]string{"finish content_filter m-1 0"}},
		{"nothing is read after the end",
			[]string{created, over, message, `output_text.delta|"output_index":0,"delta":"late"`}, []string{finish}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for how, in := range map[string]io.Reader{"at once": strings.NewReader(stream(tt.in...)),
				"byte by byte": iotest.OneByteReader(strings.NewReader(stream(tt.in...)))} {
				got, err := deltas(t, in)
				if err != nil {
					t.Errorf("%s: %v", how, err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
		})
	}
	for _, broken := range []string{"", stream(created), "data: [DONE]\n\n", "data: x\n\n", stream(created, message,
		`output_text.delta|"output_index":0,"delta":"a"`) + "data: {", "<html>"} {
		if got, err := deltas(t, strings.NewReader(broken)); err == nil {
			t.Errorf("%q: got %v, want an error", broken, got)
		}
	}
}

// Essential fields of the wrong type are errors.
func TestMisfits(t *testing.T) {
	const created, message, over = `created|"response":{"model":"m-1"}`,
		`output_item.added|"output_index":0,"item":{"type":"message"}`, `completed|"response":{}`
	for name, events := range map[string][]string{
		"a call without a name": {created, `output_item.added|"output_index":0,"item":{"type":"function_call"}`,
			over},
		"a delta of no item":       {created, `output_text.delta|"output_index":3,"delta":"a"`, over},
		"an item that is null":     {created, `output_item.added|"item":null`, over},
		"an item that is a number": {created, message, `output_item.done|"item":7`, over},
		"a delta that is an object": {created, message, `output_text.delta|"output_index":0,"delta":{},"logprobs":7`,
			over},
		"an index of the wrong type": {created, message, `output_text.delta|"output_index":"zero","delta":"a"`, over},
		"arguments that are a number": {created,
			`output_item.added|"output_index":0,"item":{"type":"function_call","name":"f"}`,
			`function_call_arguments.delta|"output_index":0,"delta":1`, over},
	} {
		if got, err := deltas(t, strings.NewReader(stream(events...))); err == nil {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// Errors within the stream, in their two forms, and as a status.
func TestErrors(t *testing.T) {
	up, err := upstream.New(upstream.Options{BaseURL: BaseURL})
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]berth.Error{
		stream(created,
			`failed|"response":{"error":{"code":"server_error","message":"oops"}}`): {Code: berth.CodeUpstream,
			Message: "The model's server failed."},
		stream(created,
			`failed|"response":{"error":{"code":"rate_limit_exceeded","message":"Slow down."}}`): {Code: berth.CodeRateLimited,
			Message: "Slow down."},
		stream(created, `failed|"response":{}`): {Code: berth.CodeUpstream, Message: "The model's server failed."},
		`data: {"type":"error","code":"context_length_exceeded","message":"Too long.","param":"input"}` +
			"\n\n": {Code: berth.CodeInvalid, Message: "Too long.", Wire: "context_length_exceeded", Param: "input"},
		`data: {"type":"error","error":{"code":"insufficient_quota","message":"Pay."}}` +
			"\n\n": {Code: berth.CodeUnavailable, Message: "The model's server has no quota left.",
			Wire: "upstream_refused"},
		`data: {"type":"error","error":{"type":"invalid_request_error","code":400,"message":"No.","param":"input[3].id"}}` + "\n\n": {Code: berth.CodeInvalid,
			Message: "No.", Param: "input"},
	} {
		_, err := deltas(t, strings.NewReader(in))
		r, ok := errors.AsType[*upstream.Refusal](err)
		if !ok {
			t.Fatalf("%s: got %v", in, err)
		}
		got, ok := errors.AsType[*berth.Error](up.Refused(r, explain, "m"))
		if !ok {
			t.Fatalf("%s: not a *berth.Error", in)
		}
		shown := *got
		shown.Err = nil
		if diff := cmp.Diff(want, shown); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

// The deltas of any input satisfy model.Provider.
func FuzzAnswer(f *testing.F) {
	f.Add(stream(created, message, `output_text.delta|"output_index":0,"delta":"a"`, over))
	f.Add(stream(`output_item.added|"output_index":-1,"item":{"type":"function_call","call_id":"","name":"f"}`,
		`function_call_arguments.delta|"output_index":-1,"delta":"{"`,
		`output_item.done|"output_index":-1,"item":{"type":"novelty"}`, `incomplete|"response":null`))
	f.Add(`data: {"type":"error","error":"no"}` + "\n\n")
	f.Fuzz(func(t *testing.T, in string) {
		a := newAnswer(&model.Request{Model: "m"}, false, slog.New(slog.DiscardHandler))
		over, ids := false, map[string]bool{}
		for d, err := range upstream.Read(strings.NewReader(in), a, a.log) {
			if over {
				t.Fatalf("after the end: %#v, %v", d, err)
			}
			over = err != nil
			if r, ok := errors.AsType[*upstream.Refusal](err); ok {
				_ = explain(r)
			}
			switch d := d.(type) {
			case model.Finish:
				over = true
			case model.Call:
				first := d.Index == len(ids)
				if d.Index < 0 || d.Index > len(ids) || first != (d.Name != "") || first != (d.ID != "") || ids[d.ID] {
					t.Fatalf("after %d calls: %#v", len(ids), d)
				}
				if first {
					ids[d.ID] = true
				}
			}
		}
		if !over {
			t.Fatal("no end")
		}
	})
}
