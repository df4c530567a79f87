package program

import (
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/program/javascript"
)

func TestClose(t *testing.T) {
	for arguments, want := range map[string]struct{ code, refusal string }{
		`{"code":"text(1)"}`: {code: "text(1)"},
		`text(1)`:            {code: "text(1)"},
		`{"code":" "}`:       {refusal: "This call has no code."},
		`{"code":`:           {refusal: "not valid"},
		`{}`:                 {refusal: "This call has no code."},
		`{"code":"` + strings.Repeat("x", maxCode+1) + `"}`: {refusal: "1048577 bytes"},
	} {
		c := (&Tool{}).NewCall("call_1")
		_, item, refusal := c.Close(arguments)
		var p berth.Program
		if refusal == "" {
			if err := item.Decode(&p); err != nil {
				t.Fatal(err)
			}
		}
		if p.Code != want.code || (refusal == "") != (want.refusal == "") || !strings.Contains(refusal, want.refusal) ||
			c.Item().IsZero() != (refusal != "") {
			t.Errorf("%.40s: code %q, refusal %q, item %s", arguments, p.Code, refusal, c.Item())
		}
	}
}

// A resumed program has the clock and the seed of the first time.
func TestFingerprint(t *testing.T) {
	bound := &Tool{runner: javascript.NewRunner(1)}
	first := bound.NewCall("call_1").(*call)
	_, item, _ := first.Close(`{"code":"1"}`)
	again, err := bound.ResumeCall(item, berth.Item{}, nil)
	if err != nil || again.(*call).record != first.record || again.Item().CallID() != "call_1" {
		t.Errorf("resumed as %+v, %v", again, err)
	}
	for _, fingerprint := range []string{"", "gAAAA", "!", (record{Version: 2}).encode()} {
		foreign, err := item.With(map[string]any{"fingerprint": fingerprint})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bound.ResumeCall(foreign, berth.Item{}, nil); err == nil {
			t.Errorf("fingerprint %q is accepted", fingerprint)
		}
	}
}

func TestOffer(t *testing.T) {
	text := (&Tool{}).Offer([]berth.FunctionTool{{Name: "f", Description: "Does it.\n",
		Parameters: []byte(`{"type":"object"}`)}}).Description
	if !strings.Contains(text, "## tools.f\n\nDoes it.\n\nIts argument, as a JSON schema: {\"type\":\"object\"}\n") {
		t.Errorf("description:\n%s", text)
	}
	if text := (&Tool{}).Offer(nil).Description; !strings.Contains(text, "no tool that programs can call") {
		t.Errorf("description without tools:\n%s", text)
	}
}

// The model reads the output as data, and the error last.
func TestOutput(t *testing.T) {
	c := &call{item: berth.Program{CallID: "call_1"}}
	round := c.output(javascript.Result{Text: strings.Repeat("x", 2*maxResult), Error: "Error: no"})
	shown, err := lowerOutput(round.Output)
	if err != nil || len(shown) > maxResult+1000 || !strings.Contains(string(shown),
		`[The program failed] Error: no\n[end `) || outcome(round.Output) != tool.Failed {
		t.Errorf("%d bytes, %v: …%s", len(shown), err, shown[max(0, len(shown)-100):])
	}
	if round := c.output(javascript.Result{Text: "x"}); outcome(round.Output) != tool.OK ||
		round.Opened.ID() != round.Output.ID() {
		t.Errorf("output %s", round.Output)
	}
}
