package console

import (
	"strings"
	"testing"

	"github.com/berth-run/berth"
)

// TestDiffLines: a difference has each line of both texts once, in order, and none of a text that is too long.
func TestDiffLines(t *testing.T) {
	for _, tt := range []struct{ a, b, want string }{
		{"a\nb\nc", "a\nc", " a|-b| c"}, {"a", "b", "-a|+b"}, {"", "", " "}, {"a\nb", "b\na", "-a| b|+a"},
		{"x\ny", "x\ny\nz", " x| y|+z"},
	} {
		var got []string
		for _, l := range diffLines(tt.a, tt.b) {
			got = append(got, l.Mark+l.Text)
		}
		if strings.Join(got, "|") != tt.want {
			t.Errorf("%q and %q: got %q, want %q", tt.a, tt.b, got, tt.want)
		}
	}
	if got := diffLines(strings.Repeat("a\n", maxDiff+1), "a"); got != nil {
		t.Errorf("a long text has a difference of %d lines", len(got))
	}
}

// TestCompare: the table says what differs, and by how much.
func TestCompare(t *testing.T) {
	run := func(model string, tokens int, took int64, cost berth.Amount, tools map[string]int) *comparedRun {
		r := &comparedRun{Bar: runBar{Model: model, Status: "completed", Responses: 1, Took: took}, input: tokens, tools: tools,
			Text: model}
		if cost != 0 {
			r.Bar.Cost = &berth.Cost{Value: cost, Currency: "usd"}
		}
		return r
	}
	rows := func(p comparePage) string {
		p.compare()
		var got []string
		for _, r := range p.Rows {
			got = append(got, r.Name+": "+r.A+", "+r.B+" ("+r.Difference+")")
		}
		return strings.Join(got, "\n")
	}
	a := run("small", 1000, 500, 2e9, map[string]int{"shell": 2})
	got := rows(comparePage{A: a, B: run("large", 4000, 250, 5e9, map[string]int{"mcp": 1})})
	want := "State: Completed, Completed ()\nModel: small, large (differs)\nResponses: 1, 1 ()\nDuration: 500 ms, 250 ms (−250 ms)\n" +
		"Input tokens: 1,000, 4,000 (+3,000)\nOutput tokens: 0, 0 ()\nCost: $2.00, $5.00 (+$3.00)\nCalls of mcp: 0, 1 (+1)\n" +
		"Calls of shell: 2, 0 (−2)"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := rows(comparePage{A: a, B: run("free", 1, 1, 0, nil)}); !strings.Contains(got, "Cost: $2.00, – ()") {
		t.Errorf("got %s", got)
	}
}
