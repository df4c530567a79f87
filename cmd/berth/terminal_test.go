package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/bundle"
)

// orders are what a terminal would obey, or be misled by, in a text that came out of
// a sandbox or that somebody else chose.
const orders = "a\x1b]0;b\x07\x1b[2Jc\rd\u009bd\u202ee\x7f"

// What is shown for people gives no orders to their terminal, nor has it more lines
// than it should.
func TestNoOrdersToTerminals(t *testing.T) {
	var out bytes.Buffer
	name := orders + "\nb\tc"
	c := &berth.Container{ID: "cntr_1", Name: name}
	if err := printTop(&out, []topLine{{container: c}}, false); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 2 {
		t.Errorf("top: %d lines: %q", lines, out.String())
	}
	for what, line := range map[string]string{"ps": psLine(c, time.Now()), "snapshots": snapshotLine(&berth.Snapshot{Name: name}), "audit": entryText(&audit.Entry{Name: name, Host: name})} {
		if strings.Contains(line, "\n") || what != "audit" && strings.Count(line, "\t") > 7 {
			t.Errorf("%s: %q", what, line)
		}
		out.WriteString(line)
	}
	_ = differs(&out, &bundle.Replay{Divergence: &bundle.Divergence{Recorded: name, Replayed: name}})
	_ = besides(&out, &bundle.Replay{Responses: []bundle.ReplayResponse{{Recorded: []string{name}, Replayed: []string{name}, Error: name}}})
	p := progress{w: &out}
	p.text(name)
	if i := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && r != '\t' && printable(r) < 0 }); i >= 0 {
		t.Errorf("got %q", out.String()[max(0, i-40):i+10])
	}
}

// An error may hold words of a guest's.
func TestErrorsGiveNoOrders(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	old := os.Stderr
	os.Stderr = w
	code := Main([]string{"logs", "--url", "http://127.0.0.1:1/" + orders, "x"})
	os.Stderr = old
	w.Close()
	said, err := io.ReadAll(r)
	if err != nil || code != 1 || len(said) == 0 || strings.ContainsAny(string(said), "\x1b\r\x07\x7f\u009b\u202e") {
		t.Errorf("got %q, %d, %v", said, code, err)
	}
}

func TestBudgetConfig(t *testing.T) {
	b, err := BudgetConfig{MaxTurns: 3, MaxTokens: 4, MaxTime: 90 * time.Second, MaxCost: "2.50", MaxFailures: -1}.budget()
	want := berth.Budget{Turns: 3, Tokens: 4, Seconds: 90, Failures: -1}
	want.Cost, _ = berth.ParseAmount("2.5")
	if err != nil || b != want || b.Cost == 0 {
		t.Errorf("got %+v, %v; want %+v", b, err, want)
	}
	for name, c := range map[string]BudgetConfig{"max_cost": {MaxCost: "a lot"}, "max_cost must not": {MaxCost: "-1"}, "max_turns": {MaxTurns: -1},
		"max_total_tokens": {MaxTokens: -1}, "max_time": {MaxTime: -time.Second}, "a second": {MaxTime: time.Millisecond}} {
		if _, err := c.budget(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: got %v, want an error about %s", c, err, name)
		}
	}
}
