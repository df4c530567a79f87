package console

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

// TestUsageSums: groups are summed over days and sorted by cost; a column is as high as its share of the
// highest day.
func TestUsageSums(t *testing.T) {
	var found usageBuckets
	if err := json.Unmarshal([]byte(`{"data":[
		{"start_time":0,"results":[{"model":"a","input_tokens":10,"output_tokens":5,"num_model_requests":2,"berth":{"cost":{"value":0.5,"currency":"usd"}}},{"model":"b","input_tokens":100,"num_model_requests":1}]},
		{"start_time":86400,"results":[{"model":"a","input_tokens":1,"num_model_requests":1,"berth":{"cost":{"value":1,"currency":"usd"}}},{"input_tokens":7,"num_model_requests":1}]}]}`), &found); err != nil {
		t.Fatal(err)
	}
	p := usagePage{By: "model"}
	p.sum(found)
	var got []string
	for _, g := range append(p.Groups, &p.Total) {
		got = append(got, fmt.Sprintf("%s %s: %d, %d in, %d out, %s", g.Name, g.Colour, g.Requests, g.Input, g.Output,
			g.Cost.Value))
	}
	if want := []string{"a series0: 3, 11 in, 5 out, 1.5", "b series1: 1, 100 in, 0 out, 0",
		"none series2: 1, 7 in, 0 out, 0", " : 5, 118 in, 5 out, 1.5"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(p.Chart) != 2 || p.Chart[0].Parts[0] != (part{"series0", 50, 50}) ||
		p.Chart[1].Parts[0] != (part{"series0", 0, 100}) || p.Chart[1].Day != "1970-01-02" ||
		p.Chart[1].Amount != "1 USD" {
		t.Errorf("got %+v", p.Chart)
	}
	unpriced := usagePage{By: "api_key_id"}
	found.Data[0].Results = found.Data[0].Results[1:]
	found.Data = found.Data[:1]
	unpriced.sum(found)
	if unpriced.Priced || unpriced.Chart[0].Amount != "100 tokens" || unpriced.Chart[0].Parts[0].Height != 100 {
		t.Errorf("got %+v", unpriced.Chart)
	}
}
