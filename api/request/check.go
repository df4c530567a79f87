package request

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// checkTrigger refuses a compaction_trigger that is not the last item.
func checkTrigger(input []berth.Item) error {
	for i, it := range input[:max(0, len(input)-1)] {
		if it.Type() == berth.ItemCompactionTrigger {
			return berth.Invalid(fmt.Sprintf("input[%d]", i),
				"Invalid 'input[%d]': a compaction_trigger must be the last input item.", i)
		}
	}
	return nil
}

// CheckItemID refuses an id without the prefix of the item's type. The ids of items in a
// conversation are keys in the store, where an item must not look like another object.
func (r *Rules) CheckItemID(at string, it berth.Item) error {
	// An output may have the prefix of its call.
	if prefix := strings.TrimRight(r.prefix(it.Type()), "o_"); !strings.HasPrefix(it.ID(), prefix) {
		return rule.Errorf("invalid_value", at, "Invalid '%s': '%s'. Expected an ID that begins with '%s'.", at,
			rule.Clip(it.ID()), prefix)
	}
	return nil
}

var wordJSON = regexp.MustCompile("(?i)json")

// IsJSONObject reports whether a format is {"type":"json_object"}.
func IsJSONObject(format json.RawMessage) bool {
	var f struct{ Type string }
	return len(format) > 0 && json.Unmarshal(format, &f) == nil && f.Type == "json_object"
}

// MentionsJSON reports whether a text contains the word JSON, which json_object requires.
func MentionsJSON(text []byte) bool { return wordJSON.Match(text) }

// checkMentionsJSON refuses text.format json_object if neither the instructions nor the
// input contain the word JSON, because models then write endless white space. It does not
// check requests with a stored chain, a conversation or a prompt.
func checkMentionsJSON(req *berth.ResponseRequest) error {
	if req.Text == nil || !IsJSONObject(req.Text.Format) || req.PreviousResponseID != "" || req.Conversation != nil ||
		req.Prompt != nil {
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
	return berth.Invalid("input",
		"Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.")
}
