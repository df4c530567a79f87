package model

import (
	"errors"
	"time"
)

// A retryError is an error with the time to wait before a retry.
type retryError struct {
	error
	after time.Duration
}

func (e *retryError) Unwrap() error { return e.error }

// WithRetryAfter marks err with the wait that the upstream requested.
func WithRetryAfter(err error, after time.Duration) error {
	return &retryError{err, after}
}

// RetryAfter returns the wait that the upstream requested, if it requested one.
func RetryAfter(err error) (time.Duration, bool) {
	if e, ok := errors.AsType[*retryError](err); ok {
		return e.after, true
	}
	return 0, false
}

// ErrNotSent is in the chain of an error when the request was not sent, because the
// upstream had failed too often. Callers must not count it as another failure.
var ErrNotSent = errors.New("the request was not sent to the upstream")

// ErrUnreachable is in the chain of an error when there was no connection to the
// upstream. It does not depend on the model.
var ErrUnreachable = errors.New("the upstream could not be reached")

// ErrKey is in the chain of an error when the upstream refused the key or its account.
// Another key may work.
var ErrKey = errors.New("the upstream refused the key")
