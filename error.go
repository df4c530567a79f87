package berth

import (
	"errors"
	"fmt"
	"time"
)

// A Code classifies an error for programs. The api package maps each to an HTTP
// status and an OpenAI error type, in one table.
type Code string

const (
	CodeInvalid          Code = "invalid_request"     // the request is wrong; sending it again is pointless
	CodeUnauthorized     Code = "unauthorized"        // no key, or one that is not known
	CodeForbidden        Code = "forbidden"           // a known caller may not do this
	CodeNotFound         Code = "not_found"           // unknown, deleted, or another project's
	CodeConflict         Code = "conflict"            // the thing is not in a state that allows this
	CodeTooLarge         Code = "too_large"           // a body or file above its limit
	CodeUnsupportedMedia Code = "unsupported_media"   // a body in an encoding that is not understood
	CodeRateLimited      Code = "rate_limit_exceeded" // here or upstream; try later
	CodeUpstream         Code = "upstream_error"      // the model provider failed
	CodeUnavailable      Code = "unavailable"         // this server cannot do it now
	// CodeInsufficientStorage: the volumes of this server have no room for anything new.
	CodeInsufficientStorage Code = "insufficient_storage"
	// CodeCorrupt: what the server stores is missing or damaged on its disk.
	CodeCorrupt  Code = "corrupt"
	CodeInternal Code = "internal" // a fault of Berth; nothing of it reaches the client
)

// An Error is the only error type that reaches a client. Code is for programs,
// Message and Param are for the client's author, Err is for the operator's log.
// Any other error is CodeInternal and says nothing outside.
type Error struct {
	Code    Code
	Message string
	Param   string // the request field at fault, dotted as OpenAI does: input[0].content
	Wire    string // OpenAI's "code", such as previous_response_not_found; may be empty
	Type    string // OpenAI's "type", where it is another than that of Code
	Err     error

	// RetryAfter is when another attempt may succeed; 0 if nobody knows. Less is
	// never, as far as the server can tell.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error with a formatted message for the client. A %w in the
// format is kept for errors.Is but is also visible to the client: wrap only
// errors whose text may be shown.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// Invalid returns a CodeInvalid error about one request field.
func Invalid(param, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

// ErrorCode returns the code of the first Error in err's chain, CodeInternal for
// any other error, and "" for nil.
func ErrorCode(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}
