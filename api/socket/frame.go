package socket

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/internal/rule"
)

// A frame is one event of the client: a response.create or a response.steer.
type frame struct {
	steer    *steering
	lane     string // its stream_id; "" is the lane without a name
	previous berth.ResponseID
	req      *berth.ResponseRequest
	prepare  bool            // generate: false
	size     int64           // bytes received
	err      error           // of the request; sent when it is the frame's turn
	held     *ration.Account // memory of the decoded request, and of data; must be closed
	data     []byte          // as the client sent it, for another server; nil without a cluster
}

// clientEvent holds the rules of the fields of a client event that are not those of
// POST /v1/responses. Of these, OpenAI's document lacks generate, which is in its guide, and
// client_metadata, which its clients send for statistics.
var clientEvent = rule.Fields{
	"type":            rule.AnyText,
	"stream_id":       laneName,
	"generate":        rule.Boolean,
	"client_metadata": rule.AnyObject,
}

const (
	clientEventCreate = "response.create"
	clientEventSteer  = "response.steer"
)

var laneNames = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,256}$`)

func laneName(at string, v any) error {
	if name, ok := v.(string); !ok || !laneNames.MatchString(name) {
		return rule.Errorf("invalid_stream_id", at,
			"The 'stream_id' field must be a non-empty string with at most 256 characters and may only contain letters, numbers, underscores, hyphens, and periods.")
	}
	return nil
}

// A steering is input for a response in progress. OpenAI's clients can send it, but this
// server does not support it and sends it back.
type steering struct {
	PreviousResponseID json.RawMessage `json:"previous_response_id"`
	Input              json.RawMessage `json:"input"`
}

// decodeFrame decodes a client event. It returns errors of the event itself, which are sent
// immediately. An error of the request within it is in the frame. In both cases, the frame's
// lane is set if it is valid.
func decodeFrame(rules *request.Rules, data []byte) (frame, error) {
	f := frame{size: int64(len(data))}
	tree, err := exchange.ParseJSON(data)
	if err != nil {
		return f, err
	}
	obj, ok := tree.(map[string]any)
	if !ok {
		return f, &berth.Error{Code: berth.CodeInvalid, Wire: "invalid_type",
			Message: "Invalid event: expected a JSON object, but got " + rule.KindOf(tree) + " instead."}
	}
	if err := rule.CheckFields("", obj, clientEvent, []string{"type"}); err != nil {
		return f, err
	}
	lane, _ := obj["stream_id"].(string)
	f.lane = strings.Clone(lane)
	switch obj["type"] {
	case clientEventCreate:
	case clientEventSteer:
		f.steer = &steering{}
		if err := json.Unmarshal(data, f.steer); err != nil {
			return f, fmt.Errorf("decode frame: %w", err)
		}
		return f, nil
	default:
		return f, rule.WrongValue("type", obj["type"].(string), []string{clientEventCreate})
	}
	if id, ok := obj["previous_response_id"].(string); ok {
		f.previous = berth.ResponseID(strings.Clone(id))
	}
	generate, given := obj["generate"].(bool)
	f.prepare = given && !generate
	maps.DeleteFunc(obj, func(name string, _ any) bool { return clientEvent[name] != nil })
	f.req, f.err = decodeCreate(rules, data, obj)
	return f, nil
}

// decodeCreate decodes the request of a response.create. It is like the body of a POST, but
// the response is always streamed and never in the background.
func decodeCreate(rules *request.Rules, data []byte, obj map[string]any) (*berth.ResponseRequest, error) {
	if err := rules.Create("", obj); err != nil {
		return nil, err
	}
	if stream, given := obj["stream"].(bool); given && !stream {
		return nil, rule.Errorf("unsupported_value", "stream",
			"Unsupported value: 'stream' cannot be false over a WebSocket, where every response is streamed.")
	}
	if obj["background"] == true {
		return nil, rule.Errorf("unsupported_parameter", "background",
			"Unsupported parameter: 'background' is not supported over a WebSocket.")
	}
	var req berth.ResponseRequest
	if err := json.Unmarshal(data, &req); err != nil {
		return nil, fmt.Errorf("decode a checked event: %w", err)
	}
	req.Stream = true
	if err := rules.Complete(&req); err != nil {
		return nil, err
	}
	return &req, nil
}
