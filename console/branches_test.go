package console

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-run/berth"
)

// TestBranches: responses form runs up to a fork; others are left out, and circles end.
func TestBranches(t *testing.T) {
	for name, test := range map[string]struct{ list, id, want string }{
		"a fork": {`[{"id":"x"},{"id":"f","previous_response_id":"e"},{"id":"e","previous_response_id":"b"},{"id":"d","previous_response_id":"c"},{"id":"c","previous_response_id":"b"},{"id":"b","previous_response_id":"a"},{"id":"a"}]`,
			"d", "a-b(c-d* e-f)"},
		"no fork": {`[{"id":"b","previous_response_id":"a"},{"id":"a"}]`, "a", "a-b*"},
		"the first is not in the list": {`[{"id":"c","previous_response_id":"a"},{"id":"b","previous_response_id":"a"}]`,
			"b", "b* c"},
		"a circle": {`[{"id":"b","previous_response_id":"a"},{"id":"a","previous_response_id":"b"}]`, "a",
			"a-b*"},
		"not in the list": {`[{"id":"b"}]`, "a", ""},
	} {
		var all []*summary
		if err := json.Unmarshal([]byte(test.list), &all); err != nil {
			t.Fatal(err)
		}
		if got := drawn(branchesOf(all, berth.ResponseID(test.id))); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

// drawn returns branches as text.
func drawn(branches []*branch) string {
	var all []string
	for _, b := range branches {
		var ids []string
		for _, s := range b.Responses {
			ids = append(ids, string(s.ID))
		}
		text := strings.Join(ids, "-")
		if b.Here {
			text += "*"
		}
		if len(b.Branches) > 0 {
			text += fmt.Sprintf("(%s)", drawn(b.Branches))
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// TestBranchesDeep: a tree that forks at every response has a bounded depth, and all responses.
func TestBranchesDeep(t *testing.T) {
	var all []*summary
	for i := 999; i >= 0; i-- {
		s := &summary{}
		s.ID = berth.ResponseID(fmt.Sprintf("r%03d", i))
		if i > 0 {
			previous := berth.ResponseID(fmt.Sprintf("r%03d", (i-1)/2*2))
			s.PreviousResponseID = &previous
		}
		all = append(all, s)
	}
	n, deepest := 0, 0
	var walk func([]*branch, int)
	walk = func(of []*branch, depth int) {
		deepest = max(deepest, depth)
		for _, b := range of {
			n += len(b.Responses)
			walk(b.Branches, depth+1)
		}
	}
	walk(branchesOf(all, "r000"), 0)
	if n != 1000 || deepest > branchDepth+3 {
		t.Errorf("got %d responses, %d deep", n, deepest)
	}
}
