package socket

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/standard"
)

// rules are the rules for the tools of a server.
var rules = request.New(tool.NewRegistry(standard.Kinds(standard.Options{})...))

// Any frame is either refused with an error for the client or contains a request that is
// valid for a POST, in a lane whose name cannot break the JSON of an event.
func FuzzFrame(f *testing.F) {
	for _, seed := range []string{
		`{"type":"response.create","model":"m","input":"x"}`,
		`{"type":"response.create","stream_id":"a.b-c_d","model":"m","input":[],"previous_response_id":"resp_1","generate":false,"store":false}`,
		`{"type":"response.create","stream_id":"\"}","model":"m","input":"x"}`,
		`{"type":"response.create","model":"m","input":"x","stream":true,"stream_options":{"include_obfuscation":false},"client_metadata":{"a":"b"}}`,
		`{"type":"response.create","model":"m","input":"x","background":true}`,
		`{"type":"response.steer","previous_response_id":"resp_1","input":[{"role":"user","content":"x"}]}`,
		`{"type":"response.steer"}`, `{"type":null}`, `{"type":{}}`, `[]`, `{`, ``,
		`{"type":"response.create","type":"response.steer"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fr, err := decodeFrame(rules, data)
		if fr.lane != "" && !laneNames.MatchString(fr.lane) {
			t.Fatalf("got lane %q", fr.lane)
		}
		for _, err := range []error{err, fr.err} {
			if err == nil {
				continue
			}
			if e, ok := errors.AsType[*berth.Error](err); !ok || e.Code == berth.CodeInternal {
				t.Fatalf("got %v, want an error for the client", err)
			}
		}
		if err != nil || fr.err != nil || fr.steer != nil {
			return
		}
		if fr.req == nil || fr.req.Model == "" && fr.req.Prompt == nil || !fr.req.Stream || fr.req.Background ||
			fr.previous != fr.req.PreviousResponseID {
			t.Fatalf("got frame %+v with request %+v", fr, fr.req)
		}
		shown := fr.shown([]byte(`{"type":"response.output_text.delta","delta":"x"}`))
		var ev struct {
			StreamID string `json:"stream_id"`
		}
		if err := json.Unmarshal(bytes.Join(shown, nil), &ev); err != nil || ev.StreamID != fr.lane {
			t.Fatalf("got event %s (%v), want it in lane %q", shown, err, fr.lane)
		}
	})
}

func TestFrameLane(t *testing.T) {
	// An error of the request is sent when it is the frame's turn, in its lane.
	f, err := decodeFrame(rules,
		[]byte(`{"type":"response.create","stream_id":"a","previous_response_id":"resp_1","model":7,"input":"x"}`))
	if err != nil || f.err == nil || f.lane != "a" || f.previous != "resp_1" {
		t.Errorf("got %+v, %v, want its error in the frame", f, err)
	}
	// An error about an invalid lane has no lane.
	f, err = decodeFrame(rules, []byte(`{"type":"response.create","stream_id":"`+strings.Repeat("a", 257)+`"}`))
	if err == nil || f.lane != "" {
		t.Errorf("got %+v, %v, want it refused", f, err)
	}
}
