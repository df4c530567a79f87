package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/sse"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/chat"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/model/upstream"
)

// A recording is a stream of OpenAI's service as a table: the output of the model and the
// resulting events in order. The tables are in order_table_test.go.
type recording struct {
	name    string
	request string           // beside "model" and "stream"
	says    []modeltest.Step // output of a Chat Completions upstream
	then    []modeltest.Step // in the second turn
	plays   []model.Delta    // output of a provider, if Chat Completions cannot express it
	fails   *modeltest.Refusal
	want    []string // of each event, or of several that are alike
}

// The same output of a model results in the same events, in the same order and of the same
// shape, as in recordings of OpenAI's service.
func TestEventOrder(t *testing.T) {
	t.Parallel()
	for _, r := range recordings {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			double := modeltest.NewChatServer(t, func(n int, _ *modeltest.Request) modeltest.Turn {
				return modeltest.Turn{Steps: append([][]modeltest.Step{r.says, r.then}[min(n, 1)],
					model.Finish{Reason: model.FinishStop}), Refusal: r.fails}
			})
			asks, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: double.URL,
				Log: slog.New(slog.NewTextHandler(t.Output(), nil))}})
			check(t, err)
			h := newHouse(t, nil, model.Rule{Match: "chat", Provider: asks}, model.Rule{Match: "played",
				Provider: played(r.plays)})
			name := "chat"
			if r.plays != nil {
				name = "played"
			}
			events := h.rest(h.stream(t.Context(), "POST", "/v1/responses",
				`{"model":"`+name+`","stream":true,`+r.request+`}`))
			if diff := cmp.Diff(r.want, shapes(t, events)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// played is a provider with the same output at every turn.
type played []model.Delta

func (p played) Stream(context.Context, *model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		for _, d := range append(slices.Clone(p), model.Finish{Reason: model.FinishStop}) {
			if !yield(d, nil) {
				return
			}
		}
	}
}

// shapes returns the events of a stream without their values. Those that follow
// each other and look alike are one.
func shapes(t *testing.T, events []sse.Event) []string {
	t.Helper()
	var out []string
	for n, frame := range events {
		var ev map[string]any
		check(t, json.Unmarshal(frame.Data, &ev))
		if ev["type"] != frame.Type || ev["sequence_number"] != float64(n) {
			t.Errorf("frame %d, %s, has type %v and number %v", n, frame.Type, ev["type"], ev["sequence_number"])
		}
		if _, ok := ev["obfuscation"]; ok {
			if _, text := ev["delta"].(string); !text {
				t.Errorf("%s is obfuscated", frame.Type)
			}
		}
		if line := shape(ev); len(out) == 0 || out[len(out)-1] != line {
			out = append(out, line)
		}
	}
	return out
}

// shape is an event without its values: its type, and its fields as described by
// describe.
func shape(ev map[string]any) string {
	line := strings.TrimPrefix(ev["type"].(string), "response.")
	for _, name := range slices.Sorted(maps.Keys(ev)) {
		switch name {
		case "type", "sequence_number", "obfuscation":
		case "response":
			line += " " + shapeOfResponse(ev[name].(map[string]any))
		default:
			line += " " + describe(name, ev[name])
		}
	}
	return line
}

// shapeOfResponse shows how far a response is. All its other fields are there in
// every event, which the contract checks.
func shapeOfResponse(r map[string]any) string {
	var output []string
	for _, it := range r["output"].([]any) {
		output = append(output, fmt.Sprint(it.(map[string]any)["type"]))
	}
	line := fmt.Sprintf("response{%v %v", r["status"], output)
	for _, name := range []string{"error", "incomplete_details", "usage"} {
		if r[name] != nil {
			line += " " + name
		}
	}
	return line + "}"
}

var prefixed = regexp.MustCompile(`^[a-z]+_`)

// describe shows a field: type, status, role and phase as they are, ids by their
// prefixes, null and empty values as they are, and of all others the name.
func describe(name string, v any) string {
	switch v := v.(type) {
	case nil:
		return name + ":null"
	case string:
		switch {
		case v == "":
			return name + `:""`
		case name == "type" || name == "status" || name == "role" || name == "phase":
			return name + ":" + v
		case name == "id" || strings.HasSuffix(name, "_id"):
			return name + ":" + prefixed.FindString(v)
		}
	case []any:
		if len(v) == 0 {
			return name + ":[]"
		}
		if m, ok := v[0].(map[string]any); ok {
			return name + ":[" + describe("", m) + "]"
		}
	case map[string]any:
		var fields []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if k != "berth" { // ours, and in no recording
				fields = append(fields, describe(k, v[k]))
			}
		}
		return name + "{" + strings.Join(fields, " ") + "}"
	}
	return name
}
