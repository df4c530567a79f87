package api

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	"github.com/berth-run/berth"
)

// strictFormat adds to the rule for a json_schema format that a strict one must keep
// OpenAI's rules for strict schemas.
func strictFormat(r rule) rule {
	return strictly(r, "schema", "invalid_json_schema", "response_format")
}

// strictFunction adds the same to the rule for a function.
func strictFunction(r rule) rule {
	return strictly(r, "parameters", "invalid_function_parameters", "function")
}

func strictly(r rule, field, code, what string) rule {
	return func(at string, v any) error {
		if err := r(at, v); err != nil {
			return err
		}
		obj := v.(map[string]any)
		schema, ok := obj[field].(map[string]any)
		if obj["strict"] != true || !ok {
			return nil
		}
		if problem := berth.StrictProblem(schema); problem != "" {
			name, _ := obj["name"].(string)
			return wire(code, join(at, field), "Invalid schema for %s '%s': %s", what, clip(name), problem)
		}
		return nil
	}
}

// imageURL allows http, https and data URLs.
func imageURL(at string, v any) error {
	s, ok := v.(string)
	if !ok {
		return wrongType(at, "a string", v)
	}
	if head, _, hasData := strings.Cut(s, ","); hasData && strings.HasPrefix(head, "data:") {
		return nil
	}
	return webURL(at, v)
}

// webURL allows http and https URLs.
func webURL(at string, v any) error {
	s, ok := v.(string)
	if !ok {
		return wrongType(at, "a string", v)
	}
	if len(s) <= maxURL {
		if u, err := url.Parse(s); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" {
			return nil
		}
	}
	return wire("invalid_value", at, "Invalid '%s'. Expected a valid URL, but got a value with an invalid format.", at)
}

// maxURL bounds the URLs that are not data, in bytes.
const maxURL = 16 << 10

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
