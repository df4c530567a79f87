package console

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestChains: a row is the last response of a chain, with the sums of those that were read.
func TestChains(t *testing.T) {
	for name, test := range map[string]struct {
		list string
		want []string
	}{
		"one": {`[{"id":"c","previous_response_id":"b","usage":{"total_tokens":3},"cost":{"value":0.5,"currency":"usd"}},
			{"id":"b","previous_response_id":"a","usage":{"total_tokens":2}},
			{"id":"a","usage":{"total_tokens":1},"cost":{"value":0.25,"currency":"usd"}}]`,
			[]string{"c from a: 3 responses, 6 tokens, $0.75"}},
		"branches": {`[{"id":"d","previous_response_id":"a"},{"id":"c"},{"id":"b","previous_response_id":"a"},{"id":"a","usage":{"total_tokens":1}}]`,
			[]string{"d from a: 2 responses, 1 tokens, ", "c from c: 1 responses, 0 tokens, ",
				"b from a: 2 responses, 1 tokens, "}},
		"the first is on another page": {`[{"id":"c","previous_response_id":"b"},{"id":"b","previous_response_id":"a"}]`,
			[]string{"c from b: 2 responses, 0 tokens, "}},
		"a circle": {`[{"id":"c","previous_response_id":"b"},{"id":"b","previous_response_id":"a"},{"id":"a","previous_response_id":"b"}]`,
			[]string{"c from a: 3 responses, 0 tokens, "}},
	} {
		var found []*summary
		if err := json.Unmarshal([]byte(test.list), &found); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range chainsOf(found) {
			got = append(got, rowOf(c))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// rowOf returns a row as text.
func rowOf(c chain) string {
	sum := ""
	if c.Cost != nil {
		sum = money(c.Cost)
	}
	return fmt.Sprintf("%s from %s: %d responses, %d tokens, %s", c.Last.ID, c.First, c.Responses, c.Tokens, sum)
}

// A run that has ended without completing does not count on: the list has no end of it.
func TestChainTook(t *testing.T) {
	var found []*summary
	err := json.Unmarshal([]byte(`[{"id":"a","status":"in_progress","created_at":1},{"id":"b","status":"cancelled","created_at":1},
		{"id":"c","status":"completed","created_at":1,"completed_at":4}]`), &found)
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err = templates().ExecuteTemplate(&page, "chainlist", &chainsPage{Chains: chainsOf(found)}); err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(page.String(), "<tr")[2:]
	if len(rows) != 3 || !strings.Contains(rows[0], "data-since") || !strings.Contains(rows[1], "p2\">–<") ||
		!strings.Contains(rows[2], "p2\">3.0 s<") {
		t.Errorf("got %q", rows)
	}
}
