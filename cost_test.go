package berth

import (
	"encoding/json"
	"testing"
)

func TestAmount(t *testing.T) {
	for text, want := range map[string]Amount{"0": 0, "1": 1e9, "1.25": 1_250_000_000, "0.000000001": 1,
		"-0.5": -500_000_000, "1e-3": 1_000_000, "999999999.5": 999999999_500000000} {
		got, err := ParseAmount(text)
		if err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
		out, _ := json.Marshal(got)
		var back Amount
		if err := json.Unmarshal(out, &back); err != nil || back != got {
			t.Errorf("%s: marshals to %s, which is %d, %v", text, out, back, err)
		}
	}
	for _, text := range []string{"", "x", "NaN", "Inf", "1e10", "-1e10", "1 2"} {
		if got, err := ParseAmount(text); err == nil {
			t.Errorf("%q: got %v", text, got)
		}
	}
	for a, want := range map[Amount]string{0: "0", 1: "0.000000001", -1_500_000_000: "-1.5", 12_000_000_000: "12"} {
		if got := a.String(); got != want {
			t.Errorf("%d: got %s, want %s", a, got, want)
		}
	}
}

// Turns are summed by upstream and model, and AddTurn does not change earlier sums.
func TestTurnsAddUp(t *testing.T) {
	turn := func(upstream, model string, tokens int, cost *Cost) UpstreamUsage {
		return UpstreamUsage{Upstream: upstream, Model: model, Turns: 1,
			Usage: Usage{InputTokens: tokens, TotalTokens: tokens}, Cost: cost}
	}
	usd := func(a Amount) *Cost { return &Cost{Value: a, Currency: "usd"} }
	var r Response
	if _, known := r.Cost(); known {
		t.Error("the cost of nothing is known")
	}
	for _, u := range []UpstreamUsage{turn("a", "m", 1, nil), turn("a", "m", 2, usd(5)), turn("b", "m", 4, usd(7)),
		turn("a", "n", 8, nil), turn("a", "m", 16, usd(11))} {
		before := r.Berth
		was, _ := json.Marshal(before)
		r.Berth = r.Berth.AddTurn(u)
		if is, _ := json.Marshal(before); string(is) != string(was) {
			t.Fatalf("a sum was changed from %s to %s", was, is)
		}
	}
	got, _ := json.Marshal(r.Berth)
	tokens := func(n string) string {
		return `"input_tokens":` + n +
			`,"input_tokens_details":{"cache_write_tokens":0,"cached_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":` + n
	}
	want := `{"usage":[{"upstream":"b","model":"m","turns":1,` + tokens("4") +
		`,"cost":{"value":0.000000007,"currency":"usd"}},` +
		`{"upstream":"a","model":"n","turns":1,` + tokens("8") + `},` +
		`{"upstream":"a","model":"m","turns":3,` + tokens("19") + `,"cost":{"value":0.000000016,"currency":"usd"}}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if sum, known := r.Cost(); !known || sum != *usd(23) {
		t.Errorf("got %v, %v", sum, known)
	}
}
