package exchange

import (
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// DecodeFields reads a JSON object that is forwarded to an upstream. It checks the fields
// with a rule that gets the value of the field raw as a json.RawMessage, because that may
// hold more values than a decoded request. Its errors are for the client.
func (x *Exchange) DecodeFields(r *http.Request, raw string, shape rule.Rule) (map[string]json.RawMessage, error) {
	if !IsJSON(r) {
		return nil, notJSON()
	}
	body, err := x.ReadBody(r, x.server.Limits.MaxBody)
	if err != nil {
		return nil, err
	}
	if !json.Valid(body) {
		_, err := ParseJSON(body) // for its error
		if err == nil {
			err = invalidJSON("it is not valid")
		}
		return nil, err
	}
	if !utf8.Valid(body) {
		return nil, invalidJSON("it is not valid UTF-8")
	}
	// the fields, and the upstream's request
	if err := x.decoding.Reserve(r.Context(), 3*int64(len(body))); err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		tree, err := ParseJSON(body)
		if err != nil {
			return nil, err
		}
		return nil, &berth.Error{Code: berth.CodeInvalid, Wire: "invalid_type",
			Message: "Invalid body: expected a JSON object, but got " + rule.KindOf(tree) + " instead."}
	}
	tree := map[string]any{}
	for name, value := range fields {
		if name == raw && string(value) != "null" {
			tree[name] = value
			continue
		}
		if tree[name], err = ParseJSON(value); err != nil {
			return nil, err
		}
		if tree[name] == nil { // counts as absent
			delete(fields, name)
			delete(tree, name)
		}
	}
	return fields, shape("", tree)
}
