package messages

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// requestID is the header with the id of a request.
const requestID = "request-id"

// A failure is an error in Anthropic's form, as an answer and as the last event of a stream.
type failure struct {
	Type      string        `json:"type"` // "error"
	Error     failureDetail `json:"error"`
	RequestID string        `json:"request_id"`
}

type failureDetail struct {
	Type    string          `json:"type"`
	Message string          `json:"message"`
	Details *failureDetails `json:"details,omitempty"`
}

// failureDetails tell a client what it can do.
type failureDetails struct {
	ErrorCode string `json:"error_code"`
}

// errorTypes are Anthropic's types of errors by the HTTP status.
var errorTypes = map[int]string{
	http.StatusBadRequest:            "invalid_request_error",
	http.StatusUnauthorized:          "authentication_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusConflict:              "invalid_request_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusUnsupportedMediaType:  "invalid_request_error",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusFailedDependency:      "invalid_request_error",
	http.StatusServiceUnavailable:    "overloaded_error",
	http.StatusInsufficientStorage:   "overloaded_error",
	http.StatusGatewayTimeout:        "timeout_error",
}

// newFailure returns an error in Anthropic's form. The place of the field is part of the message.
func newFailure(status int, e exchange.Error, id string) failure {
	kind := errorTypes[status]
	if kind == "" {
		kind = "api_error"
	}
	message := e.Message
	if e.Param != nil {
		at := dotted(*e.Param)
		switch {
		case e.Code == nil:
		case *e.Code == "missing_required_parameter":
			message = "Field required"
		case *e.Code == "unknown_parameter":
			message = "Extra inputs are not permitted"
		}
		message = at + ": " + message
	}
	detail := failureDetail{Type: kind, Message: message}
	if e.Code != nil && *e.Code == threadNotFound {
		detail.Details = &failureDetails{*e.Code}
	}
	return failure{Type: "error", Error: detail, RequestID: id}
}

// dotted returns a place such as messages[0].content as Anthropic writes it: messages.0.content.
func dotted(param string) string {
	return strings.TrimPrefix(strings.NewReplacer("[", ".", "]", "").Replace(param), ".")
}

// writeError answers with an error in Anthropic's form.
func writeError(x *exchange.Exchange, status int, e exchange.Error) {
	x.Header().Set(requestID, x.RequestID())
	x.OnHeader(renameRates)
	if status == http.StatusConflict || e.Code != nil && *e.Code == "insufficient_quota" {
		// a retry gets the same answer
		x.Header().Set("x-should-retry", "false")
	}
	_ = x.JSON(status, newFailure(status, e, x.RequestID()))
}

// renameRates adds Anthropic's headers of rate limits to an answer that has OpenAI's.
func renameRates(h http.Header) {
	for _, of := range []string{"requests", "tokens"} {
		limit := h.Get("x-ratelimit-limit-" + of)
		if limit == "" {
			continue
		}
		name := "anthropic-ratelimit-" + of
		h.Set(name+"-limit", limit)
		h.Set(name+"-remaining", h.Get("x-ratelimit-remaining-"+of))
		if wait, err := time.ParseDuration(h.Get("x-ratelimit-reset-" + of)); err == nil {
			h.Set(name+"-reset", time.Now().Add(wait).UTC().Format(time.RFC3339))
		}
	}
}

// placeError converts the place of an error about a response to the place in the message request.
func (t *translation) placeError(err error) error {
	e, ok := errors.AsType[*berth.Error](err)
	if !ok || e.Param == "" {
		return err
	}
	renamed := *e
	renamed.Param = t.place(e.Param)
	for _, id := range slices.Sorted(maps.Keys(t.files)) {
		if id != "" && strings.Contains(e.Message, id) {
			renamed.Param = t.files[id]
		}
	}
	return &renamed
}

// fields maps the fields of a response request to those of a message request.
var fields = []struct{ response, message string }{
	{"max_output_tokens", "max_tokens"},
	{"text.format", "output_config.format"},
	{"reasoning.effort", "output_config.effort"},
	{"instructions", "system"},
	{"stop", "stop_sequences"},
}

// place returns the field of the message request that became a field of the response request.
func (t *translation) place(param string) string {
	for i, at := range t.itemPlaces {
		if _, ok := within(param, "input["+strconv.Itoa(i)+"]"); ok {
			return at // the parts of an item differ from those of a block
		}
	}
	if rest, ok := within(param, "input"); ok {
		return "messages" + rest
	}
	for i, at := range t.toolPlaces {
		if rest, ok := within(param, "tools["+strconv.Itoa(i)+"]"); ok {
			return placeInTool(at, rest)
		}
	}
	for _, f := range fields {
		if rest, ok := within(param, f.response); ok {
			return f.message + rest
		}
	}
	return param
}

// placeInTool returns the place of a part of a tool. The container of a tool is a field of the whole request.
func placeInTool(at, rest string) string {
	for _, container := range []string{".environment", ".container"} {
		inner, ok := within(rest, container)
		if _, uploads := within(inner, ".file_ids"); ok && uploads {
			return "messages"
		} else if ok {
			return "container" + inner
		}
	}
	return at + rest
}

// within returns what follows a field in a place at or below that field.
func within(param, field string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(param, field)
	return rest, ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
