package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

// TestWaterfall: the rows of a response are its calls, commands, connections and the container's start,
// in the order of their starts; what belongs to other responses is left out.
func TestWaterfall(t *testing.T) {
	var r berth.Response
	if err := json.Unmarshal([]byte(`{"id":"resp_1","created_at":100,"output":[{"id":"sh_1","type":"shell_call","action":{"commands":["make\nall"]}}],"berth":{"timings":[
		{"type":"model","started_at_ms":100100,"duration_ms":400,"first_token_ms":100,"upstream":"up","model":"m","usage":{"input_tokens":1200,"output_tokens":80},"cost":{"value":0.25,"currency":"usd"}},
		{"type":"tool","started_at_ms":100500,"duration_ms":500,"item_id":"sh_1","item_type":"shell_call"},
		{"type":"model","started_at_ms":101000,"duration_ms":100,"model":"m","error":"rate_limited"}]}}`), &r); err != nil {
		t.Fatal(err)
	}
	at := func(ms int64) time.Time { return time.UnixMilli(ms) }
	code := 2
	facts := &containerFacts{Log: []berth.ContainerLog{
		{ResponseID: "resp_1", CallID: "sh_1", Command: "make", StartedAtMS: 100600, DurationMS: 300,
			Outcome: berth.ShellOutcome{Type: "exit", ExitCode: &code}},
		{ResponseID: "resp_2", Command: "other", StartedAtMS: 100700}},
		Flows: []flow{{Time: at(100900), Action: "egress.ended", Host: "example.com", Milliseconds: 200},
			{Time: at(100950), Action: "egress.refused", Host: "evil.example", Reason: "policy"},
			{Time: at(99000), Action: "egress.ended", Host: "before.example"}}}
	facts.Container.Berth.Start = &berth.ContainerStart{How: "cold", RequestedAtMS: 100000, DurationMS: 250}
	turn := &turnView{Response: &r, Output: entriesOf(r.Output)}
	w := newWaterfall("time-resp_1", barsOf(turn, map[berth.ContainerID]*containerFacts{"cntr_1": facts}, at(102000)), false)
	var got []string
	for _, b := range w.Bars {
		got = append(got, fmt.Sprintf("%d+%d %s %d %s %s %s", b.Start, b.Took, b.Kind, b.Depth, b.Name, b.Error,
			b.Tokens))
	}
	want := []string{"0+250 container 0 start container (cold)  ", "100+400 model 0 up/m  1,200 in, 80 out",
		"500+500 tool 0 shell: make exit 2 ", // its only command has no bar of its own
		"700+200 network 2 example.com (0 B sent, 0 B received)  ", "950+0 network 2 evil.example refused: policy ",
		"1000+100 model 0 m rate_limited "}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if w.Took != 1100 || w.Bars[1].X() != 90 || w.Bars[1].Width() != 363 || w.Bars[4].Width() != 3 {
		t.Errorf("got %d ms; bars at %d of %d, %d", w.Took, w.Bars[1].X(), w.Bars[1].Width(), w.Bars[4].Width())
	}
	var sum int64
	shares := w.Shares()
	for _, share := range shares {
		sum += share.Took
	}
	if shares[0] != (share{"model", 350}) || sum > w.Took { // each moment counts once
		t.Errorf("got %v of %d", shares, w.Took)
	}
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, "waterfall", w); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`<rect class="bar" x="90" y="2" width="363"`, "$0.25", `href="#item-sh_1"`,
		"first token after 100 ms"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("%q is missing in %s", part, b.String())
		}
	}
}

// TestWaterfallBounded: a long response has a bounded drawing, and an empty one has none.
func TestWaterfallBounded(t *testing.T) {
	w := newWaterfall("x", slices.Repeat([]bar{{Start: 5, Took: 1 << 60}}, maxBars+7), false)
	if len(w.Bars) != maxBars || w.More != 7 || w.Bars[0].Width() > wide {
		t.Errorf("got %d bars, %d more, width %d", len(w.Bars), w.More, w.Bars[0].Width())
	}
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, "waterfall", newWaterfall("x", nil, false)); err != nil ||
		strings.Contains(b.String(), "table") {
		t.Errorf("%v: %s", err, b.String())
	}
}

// TestWaterfallRuns: a response that runs has a bar for the step that has not ended, from the end of the one before.
func TestWaterfallRuns(t *testing.T) {
	for name, test := range map[string]struct{ response, want string }{
		"the first call of the model": {`{"id":"r","created_at":100,"model":"m","status":"in_progress"}`, "0+5000 model m true"},
		"a command": {`{"id":"r","created_at":100,"model":"m","status":"in_progress",
			"output":[{"type":"shell_call","id":"sh_1","action":{"commands":["make <img>"]}}],
			"berth":{"timings":[{"type":"model","started_at_ms":100100,"duration_ms":400,"model":"m"}]}}`,
			"0+400 model m false, 400+4500 tool shell: make <img> true"},
		"the model reads what the command wrote": {`{"id":"r","created_at":100,"model":"m","status":"in_progress",
			"output":[{"type":"shell_call","id":"sh_1","action":{"commands":["make"]}},{"type":"shell_call_output","id":"o"}],
			"berth":{"timings":[{"type":"model","started_at_ms":100100,"duration_ms":400,"model":"m"},
			{"type":"tool","started_at_ms":100500,"duration_ms":1500,"item_id":"sh_1","item_type":"shell_call"}]}}`,
			"0+400 model m false, 400+1500 tool shell: make false, 1900+3000 model m true"},
		"it has ended":     {`{"id":"r","created_at":100,"model":"m","status":"completed"}`, ""},
		"it has not begun": {`{"id":"r","created_at":100,"model":"m","status":"queued"}`, ""},
	} {
		var r berth.Response
		if err := json.Unmarshal([]byte(test.response), &r); err != nil {
			t.Fatal(err)
		}
		turn := &turnView{Response: &r, Output: entriesOf(r.Output)}
		w := newWaterfall("x", barsOf(turn, nil, time.UnixMilli(105_000)), false)
		var got []string
		for _, b := range w.Bars {
			got = append(got, fmt.Sprintf("%d+%d %s %s %v", b.Start, b.Took, b.Kind, b.Name, b.Runs))
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
