package api

import (
	"encoding/json"
	"regexp"

	"github.com/berth-run/berth"
)

var wordJSON = regexp.MustCompile("(?i)json")

// isJSONObject reports whether a format is {"type":"json_object"}.
func isJSONObject(format json.RawMessage) bool {
	var f struct{ Type string }
	return len(format) > 0 && json.Unmarshal(format, &f) == nil && f.Type == "json_object"
}

// checkMentionsJSON refuses text.format json_object where nothing that the request shows
// the model contains the word JSON: models then write white space without end. What a
// stored chain, a conversation or a prompt contains is not looked at.
func checkMentionsJSON(req *berth.ResponseRequest) error {
	if req.Text == nil || !isJSONObject(req.Text.Format) || req.PreviousResponseID != "" || req.Conversation != nil || req.Prompt != nil {
		return nil
	}
	if req.Instructions != nil && wordJSON.MatchString(*req.Instructions) {
		return nil
	}
	for _, it := range req.Input {
		if wordJSON.Match(it.Raw()) {
			return nil
		}
	}
	return berth.Invalid("input", "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.")
}
