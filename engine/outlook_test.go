package engine_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// The tokens of a request are counted for what the first turn of its response shows the model.
func TestCountTokensOfTheFirstTurn(t *testing.T) {
	t.Parallel()
	for name, fields := range map[string]string{
		"plain":     `"input":"How is the tide?"`,
		"tools":     `"input":"How is the tide?","tools":[{"type":"shell","environment":{"type":"container_auto"}},{"type":"function","name":"tide","parameters":{}}]`,
		"upstream":  `"input":"Draw the tide.","tools":[{"type":"image_generation"}]`,
		"update":    `"input":[{"type":"message","role":"user","content":"x"},{"type":"configuration_update","text":{"format":{"type":"json_object"}}}]`,
		"compacted": `"input":[%s,{"type":"message","role":"user","content":"And now?"}]`,
	} {
		runInBubble(t, name, func(t *testing.T) {
			h := newHouse(t, say("The tide is high."))
			h.model.native = []string{"image_generation"}
			if name == "compacted" {
				var req berth.ResponseRequest
				if err := json.Unmarshal([]byte(`{"model":"played","input":"How is the tide?"}`), &req); err != nil {
					t.Fatal(err)
				}
				c, err := h.engine.Compact(t.Context(), caller, &req)
				if err != nil {
					t.Fatal(err)
				}
				fields = fmt.Sprintf(fields, c.Output[len(c.Output)-1].Raw())
				h.model.requests = nil
			}
			var req berth.ResponseRequest
			if err := json.Unmarshal([]byte(`{"model":"played",`+fields+`}`), &req); err != nil {
				t.Fatal(err)
			}
			n, err := h.engine.CountTokens(t.Context(), caller, &req)
			if err != nil {
				t.Fatal(err)
			}
			h.final(h.create(`{"model":"played",` + fields + `}`).ID)
			if want := model.Estimate(h.model.requests[0]); n != want {
				t.Errorf("got %d tokens, want %d", n, want)
			}
		})
	}
}
