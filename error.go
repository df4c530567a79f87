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
	CodeInvalid          Code = "invalid_request"     // the request is wrong; a retry fails too
	CodeUnauthorized     Code = "unauthorized"        // a missing or unknown key
	CodeForbidden        Code = "forbidden"           // a known caller may not do this
	CodeNotFound         Code = "not_found"           // unknown, deleted, or another project's
	CodeConflict         Code = "conflict"            // the object's state does not allow this
	CodeTooLarge         Code = "too_large"           // a body or file above its limit
	CodeUnsupportedMedia Code = "unsupported_media"   // a body with an unsupported encoding
	CodeRateLimited      Code = "rate_limit_exceeded" // here or upstream; try later
	CodeUpstream         Code = "upstream_error"      // the model provider failed
	CodeDependency       Code = "dependency_failed"   // a server of the client's choice failed, such as an MCP server
	CodeUnavailable      Code = "unavailable"         // this server cannot do it now
	// CodeInsufficientStorage: the server has no space for new volumes.
	CodeInsufficientStorage Code = "insufficient_storage"
	// CodeCorrupt: stored data is missing or damaged on the server's disk.
	CodeCorrupt  Code = "corrupt"
	CodeInternal Code = "internal" // a fault of Berth; clients get no details
)

// An Error is the only error type that reaches a client. Code is for programs,
// Message and Param are for the client's author, Err is for the operator's log.
// Any other error is CodeInternal, and its text is only logged.
type Error struct {
	Code    Code
	Message string
	Param   string // the request field at fault, dotted as OpenAI does: input[0].content
	Wire    string // OpenAI's "code", such as previous_response_not_found; may be empty
	Type    string // OpenAI's "type", if it differs from that of Code
	Err     error

	// RetryAfter is the time after which a retry may succeed. Zero means unknown,
	// negative means that no retry is expected to succeed.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error with a formatted message for the client. The text of an
// error wrapped with %w becomes part of the message: wrap only errors whose text a
// client may see.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// Invalid returns a CodeInvalid error about one request field.
func Invalid(param, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

// NotFound returns a CodeNotFound error about the object of an id. The noun starts a sentence. Clip an
// id that a client chose.
func NotFound[ID ~string](noun string, id ID) *Error {
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf("%s with id '%s' not found.", noun, string(id))}
}

// What the store reports about a read or a write, for the parts that need not know the store. Its errors wrap them.
var (
	// ErrNotFound means that the project has no such object.
	ErrNotFound = errors.New("not found")
	// ErrStorage means that the disk refused a write because it is full or failing.
	// Nothing of the write was saved.
	ErrStorage = errors.New("the disk is full or failing")
	// ErrUnavailable means that the database cannot be used now, for example because it
	// is restarted. Nothing of a write was saved, unless the error says that this is not
	// known.
	ErrUnavailable = errors.New("the database is not available")
)

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
