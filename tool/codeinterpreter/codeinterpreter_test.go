package codeinterpreter

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/guest/jupyter"
)

// An idle Execer runs nothing.
type idle struct{}

func (idle) Prepare(guest.ShellCall) {}
func (idle) Shell(context.Context, guest.ShellCall) iter.Seq2[guest.ShellEvent, error] {
	return func(func(guest.ShellEvent, error) bool) {}
}
func (idle) Cancel(context.Context, string) error { return nil }
func (idle) Forget(context.Context, string)       {}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, arguments, code, invalid string }{
		{"JSON", `{"code":"a = \"é\"\nprint(a)"}`, "a = \"é\"\nprint(a)", ""},
		{"no JSON", "print(1)", "print(1)", ""},
		{"broken JSON", `{"code":"print(1)`, "", "The arguments of this call are not valid"},
		{"no code", `{}`, "", "This call has no code"},
		{"blank code", `{"code":" \n"}`, " \n", "This call has no code"},
		{"NUL", `{"code":"print(1)\u0000"}`, "print(1)\x00", "The code contains a NUL character"},
		{"another type", `{"code":["1"]}`, "", "The arguments of this call are not valid"},
		{"too long", `{"code":"` + strings.Repeat("x", maxCode+1) + `"}`, strings.Repeat("x", maxCode+1),
			fmt.Sprintf("The code has %d bytes", maxCode+1)},
	} {
		made := New("cntr_1", idle{}, Limits{}).NewCall("call_1").(*call)
		var streamed strings.Builder
		var events []berth.Event
		for len(c.arguments) > 0 { // in pieces that cut characters and escapes
			n := min(7, len(c.arguments))
			events = append(events, made.Write(c.arguments[:n])...)
			streamed.WriteString(c.arguments[:n])
			c.arguments = c.arguments[n:]
		}
		last, item, refusal := made.Close(streamed.String())
		events = append(events, last...)
		var code strings.Builder
		for _, ev := range events {
			if text, ok := ev.DeltaText(); ok && ev.Type == berth.EventCodeDelta {
				code.WriteString(text)
			}
		}
		end := events[len(events)-1]
		if events[0].Type != berth.EventCodeInProgress || end.Type != berth.EventCodeDone || *end.Code != c.code ||
			refusal != "" {
			t.Errorf("%s: events %.300v, refusal %q", c.name, events, refusal)
		}
		if c.name != "broken JSON" && code.String() != c.code {
			t.Errorf("%s: deltas %.100q", c.name, code.String())
		}
		if !strings.HasPrefix(made.invalid, c.invalid) || c.invalid == "" && made.invalid != "" {
			t.Errorf("%s: %q", c.name, made.invalid)
		}
		if item.Status() != berth.StatusCompleted || made.Item().Status() != berth.StatusInProgress {
			t.Errorf("%s: %s, then %s", c.name, made.Item().Status(), item.Status())
		}
	}
}

// A call is resumed only if the model had finished it, and with its exact code.
func TestResume(t *testing.T) {
	t.Parallel()
	tool := New("cntr_1", idle{}, Limits{})
	first := tool.NewCall("call_1")
	open := first.Item()
	events := first.Write(`{"code":"x`)
	if c, err := tool.ResumeCall(open, berth.Item{}, events); c != nil || err != nil {
		t.Errorf("an unfinished call was resumed: %v, %v", c, err)
	}
	last, _, _ := first.Close(`{"code":"x = 1"}`)
	c, err := tool.ResumeCall(open, berth.Item{}, append(events, last...))
	if err != nil || c.(*call).item.Code != "x = 1" || c.(*call).item.ID != open.ID() || c.(*call).began {
		t.Errorf("resumed %+v, %v", c, err)
	}
}

func TestKernelLine(t *testing.T) {
	t.Parallel()
	for code, want := range map[string][2]string{
		"1":                           {"python3", "1"},
		"%%kernel ir\nx <- 1":         {"ir", "x <- 1"},
		"\n%%kernel\tbash\r\nls":      {"bash", "ls"},
		"%%kernel ../../etc\n1":       {"python3", "%%kernel ../../etc\n1"},
		"%%bash\nls":                  {"python3", "%%bash\nls"},
		"x = '''\n%%kernel ir\n'''":   {"python3", "x = '''\n%%kernel ir\n'''"},
		"%%kernel javascript-node_16": {"javascript-node_16", ""},
	} {
		if kernel, rest := split(code); kernel != want[0] || rest != want[1] {
			t.Errorf("%q: %q, %q", code, kernel, rest)
		}
	}
}

// TestHostileOutputs adds what a kernel that lies may send.
func TestHostileOutputs(t *testing.T) {
	t.Parallel()
	o := newOutputs(100)
	data := func(media, value string) map[string]json.RawMessage {
		return map[string]json.RawMessage{media: berth.StringDelta(value)}
	}
	o.add(jupyter.Event{Type: jupyter.Stream, Text: "\x1b[31mred\x1b[0m\x1b]0;title\x07"})
	o.add(jupyter.Event{Type: jupyter.Display, Data: data("image/png", `"><script>`)}) // not base64
	o.add(jupyter.Event{Type: jupyter.Display, Data: data("image/png", "aGVsbG8=")})   // not an image
	o.add(jupyter.Event{Type: jupyter.Display, Data: map[string]json.RawMessage{"image/png": json.RawMessage(`7`)}})
	o.add(jupyter.Event{Type: "made up", Text: "x"})
	for range maxImages + 5 {
		o.add(jupyter.Event{Type: jupyter.Display, Data: data("image/png", "iVBORw0K\nGgo=\n")})
	}
	for range 10 {
		o.add(jupyter.Event{Type: jupyter.Display, Data: data("text/html", strings.Repeat("<b>", 100_000))})
	}
	for range 100 {
		o.add(jupyter.Event{Type: jupyter.Stream, Text: strings.Repeat("é", 1000)})
	}
	o.finish()
	images, logs, results := 0, "", 0
	for _, out := range o.list {
		if out.Type == "image" {
			if images++; out.URL != "data:image/png;base64,iVBORw0KGgo=" {
				t.Errorf("an image is %q", out.URL)
			}
		}
		logs += out.Logs
	}
	for _, r := range o.results {
		results += len(r["text/html"])
	}
	if images != maxImages || results > maxResults {
		t.Errorf("%d images, %d bytes of results", images, results)
	}
	if n := len([]rune(logs)); !strings.HasPrefix(logs, "red\nx") || n > 100+maxTail+100 || !strings.Contains(logs,
		"characters were left out]") {
		t.Errorf("%d characters of logs: %.200q", n, logs)
	}
}

// A text that is too long keeps its start and its end, also if it comes in one piece.
func TestLongOutput(t *testing.T) {
	t.Parallel()
	for _, pieces := range []int{1, 3, 1000} {
		o := newOutputs(100)
		text := "HEAD" + strings.Repeat("é", 20_000) + "TAIL"
		runes := []rune(text)
		for i := range pieces {
			o.add(jupyter.Event{Type: jupyter.Stream,
				Text: string(runes[i*len(runes)/pieces : (i+1)*len(runes)/pieces])})
		}
		o.finish()
		want := "HEAD" + strings.Repeat("é", 96) + fmt.Sprintf("\n[%d characters were left out]\n",
			len(runes)-100-maxTail) + strings.Repeat("é", maxTail-4) + "TAIL"
		if len(o.list) != 1 || o.list[0].Logs != want {
			t.Errorf("in %d pieces: got %.300v", pieces, o.list)
		}
	}
}

// A model reads the logs and lines about images, and nothing of a call without an end.
func TestLower(t *testing.T) {
	t.Parallel()
	item := berth.CodeInterpreterCall{ID: "ci_1", Type: berth.ItemCodeInterpreterCall, Status: berth.StatusCompleted,
		Code: "a < b",
		Outputs: []berth.CodeInterpreterOutput{{Type: "logs", Logs: "one"},
			{Type: "image", URL: "data:image/png;base64," + strings.Repeat("A", 4000)}, {Type: "logs", Logs: "two"}},
		Berth: &berth.CodeInterpreterBerth{Restarted: true}}
	if _, arguments, _ := lowerCall(berth.NewItem(item)); arguments != `{"code":"a < b"}` {
		t.Errorf("arguments: %s", arguments)
	}
	output, err := lowerOutput(berth.NewItem(item))
	if want := string(berth.StringDelta(restartedText +
		"one\n[image 1: image/png, about 3 kB, shown to the user]\ntwo")); err != nil || string(output) != want {
		t.Errorf("output: %s, %v", output, err)
	}
	item.Status = berth.StatusInProgress
	if output, err := lowerOutput(berth.NewItem(item)); output != nil || err != nil {
		t.Errorf("output of an open call: %s, %v", output, err)
	}
}
