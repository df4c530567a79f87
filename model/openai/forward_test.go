package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/openai"
	"github.com/berth-run/berth/model/upstream"
)

// A forwarded request of a stream yields each event, and the usage of the last.
func TestForwardStream(t *testing.T) {
	const partial, last = `{"type":"image_generation.partial_image","b64_json":"cA=="}`,
		`{"type":"image_generation.completed","b64_json":"aQ==","usage":{"input_tokens":3,"output_tokens":40,"total_tokens":43}}`
	for _, tc := range []struct {
		name, media, body string
		want              []string // bodies, and the error
		usage             berth.Usage
	}{
		{"events", "text/event-stream", "event: image_generation.partial_image\ndata: " + partial + "\n\ndata: " +
			last + "\n\ndata: [DONE]\n\n", []string{partial, last}, berth.Usage{InputTokens: 3, OutputTokens: 40,
			TotalTokens: 43}},
		{"a whole answer", "application/json", `{"data":[{"b64_json":"aQ=="}]}`,
			[]string{`{"data":[{"b64_json":"aQ=="}]}`}, berth.Usage{}},
		{"an error", "text/event-stream", "data: " + partial +
			"\n\ndata: {\"type\":\"error\",\"error\":{\"message\":\"It is unsafe.\",\"type\":\"image_generation_user_error\",\"code\":\"moderation_blocked\"}}\n\n",
			[]string{partial, "It is unsafe."}, berth.Usage{}},
		{"no JSON", "text/event-stream", "data: oh\n\n", []string{"cannot read"}, berth.Usage{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if r.URL.Path != "/v1/images/generations" || !strings.Contains(string(body), `"model":"m"`) {
					t.Errorf("the upstream got %s %s", r.URL.Path, body)
				}
				w.Header().Set("Content-Type", tc.media)
				fmt.Fprint(w, tc.body)
			}))
			defer server.Close()
			p, err := openai.New(openai.Options{Options: upstream.Options{BaseURL: server.URL + "/v1"}})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			var usage berth.Usage
			for d, err := range p.Forward(t.Context(), &model.Request{Model: "m",
				Forwarded: &model.Forwarded{Endpoint: "images/generations", Stream: true,
					Fields: map[string]json.RawMessage{"prompt": json.RawMessage(`"x"`)}}}) {
				switch d := d.(type) {
				case model.Body:
					got = append(got, string(d.JSON))
				case model.Finish:
					usage = d.Usage
				}
				if err != nil {
					got = append(got, err.Error())
				}
			}
			if len(got) == len(tc.want) && len(got) > 0 && strings.Contains(got[len(got)-1], tc.want[len(tc.want)-1]) {
				got[len(got)-1] = tc.want[len(tc.want)-1]
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || usage != tc.usage {
				t.Errorf("usage %+v, yielded (-want +got):\n%s", usage, diff)
			}
		})
	}
}
