package model

import (
	"errors"
	"time"
)

// A retryError is an error that says when to try again.
type retryError struct {
	error
	after time.Duration
}

func (e *retryError) Unwrap() error { return e.error }

// WithRetryAfter marks err with the time that the upstream asked to wait.
func WithRetryAfter(err error, after time.Duration) error {
	return &retryError{err, after}
}

// RetryAfter returns how long the upstream asked to wait, if it did.
func RetryAfter(err error) (time.Duration, bool) {
	if e, ok := errors.AsType[*retryError](err); ok {
		return e.after, true
	}
	return 0, false
}

// ErrNotAsked is in the chain of an error when nothing was asked, because the upstream
// had failed too often: it is no further failure.
var ErrNotAsked = errors.New("the upstream was not asked")

// ErrUnreachable is in the chain of an error when there was no connection to the
// upstream, whatever model it was to be asked for.
var ErrUnreachable = errors.New("the upstream could not be reached")

// ErrKey is in the chain of an error when the upstream refused the key it was asked
// with, or the account behind it: another key may do.
var ErrKey = errors.New("the upstream refused the key")
