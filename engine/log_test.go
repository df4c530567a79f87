package engine_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// Each log line of a run names the request that created it, after a restart as well.
func TestRequestIDInTheLog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		upstream := berth.Errorf(berth.CodeUpstream, "no answer")
		h := newHouse(t, turn{upstream}, say("one"), turn{model.Text{Text: "two"}, hang{}},
			turn{berth.Invalid("input", "no")})
		h.stop()
		var log bytes.Buffer
		h.log = io.MultiWriter(t.Output(), &log)
		h.start()
		ask := func(requestID, body string) berth.ResponseID {
			t.Helper()
			var req berth.ResponseRequest
			if err := json.Unmarshal([]byte(body), &req); err != nil {
				t.Fatal(err)
			}
			r, err := h.engine.Create(t.Context(), berth.Caller{Project: project, Key: "key_1", RequestID: requestID},
				&req)
			if err != nil {
				t.Fatal(err)
			}
			return r.ID
		}
		h.final(ask("req_retried", `{"model":"played","input":"x"}`))
		resumed := ask("req_resumed", `{"model":"played","input":"x","background":true}`)
		h.waitFor(resumed, berth.EventOutputTextDelta)
		h.stop()
		h.start()
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.final(resumed)
		h.stop()
		for _, want := range []string{
			`msg="retrying turn" response=resp_ request_id=req_retried`,
			`msg="resumed response" response=resp_ request_id=req_resumed`,
			`msg="response failed" response=resp_ request_id=req_resumed`,
		} {
			head, tail, _ := strings.Cut(want, "resp_")
			found := false
			for line := range strings.Lines(log.String()) {
				found = found || strings.Contains(line, head) && strings.Contains(line, tail)
			}
			if !found {
				t.Errorf("no line has %s:\n%s", want, &log)
			}
		}
	})
}
