package request

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// checkTrigger refuses a compaction_trigger that something follows.
func checkTrigger(input []berth.Item) error {
	for i, it := range input[:max(0, len(input)-1)] {
		if it.Type() == berth.ItemCompactionTrigger {
			return berth.Invalid(fmt.Sprintf("input[%d]", i), "Invalid 'input[%d]': a compaction_trigger must be the last input item.", i)
		}
	}
	return nil
}

// CheckItemID refuses an id that does not begin as those of its type. The ids of
// items in a conversation are keys of the store: no item is to look like the owner
// of others.
func (r *Rules) CheckItemID(at string, it berth.Item) error {
	// An output may have an id of its call's kind.
	if begin := strings.TrimRight(r.prefix(it.Type()), "o_"); !strings.HasPrefix(it.ID(), begin) {
		return rule.Errorf("invalid_value", at, "Invalid '%s': '%s'. Expected an ID that begins with '%s'.", at, rule.Clip(it.ID()), begin)
	}
	return nil
}

var wordJSON = regexp.MustCompile("(?i)json")

// IsJSONObject reports whether a format is {"type":"json_object"}.
func IsJSONObject(format json.RawMessage) bool {
	var f struct{ Type string }
	return len(format) > 0 && json.Unmarshal(format, &f) == nil && f.Type == "json_object"
}

// MentionsJSON reports whether a text contains the word that json_object asks for.
func MentionsJSON(text []byte) bool { return wordJSON.Match(text) }

// checkMentionsJSON refuses text.format json_object where nothing that the request shows
// the model contains the word JSON: models then write white space without end. What a
// stored chain, a conversation or a prompt contains is not looked at.
func checkMentionsJSON(req *berth.ResponseRequest) error {
	if req.Text == nil || !IsJSONObject(req.Text.Format) || req.PreviousResponseID != "" || req.Conversation != nil || req.Prompt != nil {
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
