package console

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth"
)

// TestTraceBars: spans follow their parents in the order of their starts; broken parents and times lose no
// span.
func TestTraceBars(t *testing.T) {
	var spans []berth.TraceSpan
	if err := json.Unmarshal([]byte(`[
		{"id":"c","parent_id":"a","started_at":"2026-01-01T00:00:03Z","ended_at":"2026-01-01T00:00:04Z","span_data":{"type":"response","response_id":"resp_1","usage":{"input_tokens":7,"output_tokens":2}}},
		{"id":"b","parent_id":"a","started_at":"2026-01-01T00:00:01.250Z","ended_at":"2026-01-01T00:00:02Z","span_data":{"type":"function","name":"tide"},"error":{"message":"no\nport"}},
		{"id":"a","parent_id":null,"started_at":"2026-01-01T00:00:01Z","ended_at":"2026-01-01T00:00:05Z","span_data":{"type":"agent","name":"Harbour"}},
		{"id":"x","parent_id":"y","span_data":{"type":"custom","name":"turn","data":{"turn":2}}},
		{"id":"y","parent_id":"x","span_data":[]},
		{"id":"z","parent_id":"gone","span_data":{"type":"handoff","from_agent":"A","to_agent":"B"}}]`), &spans); err != nil {
		t.Fatal(err)
	}
	bars, ordered := traceBars(spans)
	w := newWaterfall("x", bars, true)
	var got []string
	for i, b := range w.Bars {
		got = append(got, fmt.Sprintf("%s %d+%d %s %d %s %s %s", ordered[i].ID, b.Start, b.Took, b.Kind, b.Depth,
			b.Name, b.Tokens, b.Error))
	}
	want := []string{"z 0+0 other 0 handoff: A to B  ", "a 0+4000 agent 0 Harbour  ",
		"b 250+750 tool 1 tide  error: no", "c 2000+1000 model 1 response resp_1 7 in, 2 out ",
		"x 0+0 other 0 turn 2  ", "y 0+0 other 0 span  "}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if bars[3].Link != "/console/responses/resp_1" {
		t.Errorf("got the link %s", bars[3].Link)
	}
}
