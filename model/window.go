package model

import (
	"errors"
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// codeTooLong is OpenAI's code of an error about a context that is too long.
const codeTooLong = "context_length_exceeded"

// TooLong returns the error for a context that does not fit the window of its
// model. Without words of the upstream's own, it has OpenAI's.
func TooLong(message string) *berth.Error {
	if message == "" {
		message = "Your input exceeds the context window of this model. Please adjust your input and try again."
	}
	return &berth.Error{Code: berth.CodeInvalid, Wire: codeTooLong, Param: "input", Message: message}
}

// IsTooLong reports whether err is what TooLong returns.
func IsTooLong(err error) bool {
	e, ok := errors.AsType[*berth.Error](err)
	return ok && e.Wire == codeTooLong
}

// tooLong are words by which upstreams say that a context is too long; few of
// them have a code for it.
var tooLong = []string{
	"context length", "context window", "context size", "context_length", "exceed_context_size",
	"prompt is too long", "input is too long", "maximum number of tokens", "too many tokens", "longer than the model",
	"maximum context", "available context", "max_new_tokens` must be <=",
}

// SaysTooLong reports whether an upstream's refusal of a request, which it may
// explain by a code, says that the context is too long.
func SaysTooLong(code, message string) bool {
	said := strings.ToLower(code + " " + message)
	return slices.ContainsFunc(tooLong, func(words string) bool { return strings.Contains(said, words) })
}
