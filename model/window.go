package model

import (
	"errors"
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// codeTooLong is OpenAI's code of an error about a context that is too long.
const codeTooLong = "context_length_exceeded"

// TooLong returns the error for a context that does not fit the model's window. An
// empty message is used for OpenAI's.
func TooLong(message string) *berth.Error {
	if message == "" {
		message = "Your input exceeds the context window of this model. Please adjust your input and try again."
	}
	return &berth.Error{Code: berth.CodeInvalid, Wire: codeTooLong, Param: "input", Message: message}
}

// IsTooLong reports whether err came from TooLong.
func IsTooLong(err error) bool {
	e, ok := errors.AsType[*berth.Error](err)
	return ok && e.Wire == codeTooLong
}

// tooLong holds phrases by which upstreams report that a context is too long. Few have
// a code for it.
var tooLong = []string{
	"context length", "context window", "context size", "context_length", "exceed_context_size",
	"prompt is too long", "input is too long", "maximum number of tokens", "too many tokens", "longer than the model",
	"maximum context", "available context", "max_new_tokens` must be <=",
}

// MatchesTooLong reports whether the code or message of an upstream's refusal reports
// that the context is too long.
func MatchesTooLong(code, message string) bool {
	text := strings.ToLower(code + " " + message)
	return slices.ContainsFunc(tooLong, func(phrase string) bool { return strings.Contains(text, phrase) })
}
