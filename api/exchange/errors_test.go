package exchange

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

func TestDescribe(t *testing.T) {
	invalid := "invalid_request_error"
	tests := []struct {
		err    error
		status int
		want   Error
	}{
		{berth.Invalid("a.b", "no"), 400, Error{"no", invalid, OrNull("a.b"), nil}},
		{&berth.Error{Code: berth.CodeInvalid, Message: "no", Wire: "own"}, 400,
			Error{"no", invalid, nil, OrNull("own")}},
		{berth.Errorf(berth.CodeUnauthorized, "no"), 401, Error{"no", invalid, nil, nil}},
		{berth.Errorf(berth.CodeForbidden, "no"), 403, Error{"no", invalid, nil, nil}},
		{berth.Errorf(berth.CodeNotFound, "no"), 404, Error{"no", invalid, nil, nil}},
		{berth.Errorf(berth.CodeConflict, "no"), 409, Error{"no", invalid, nil, OrNull("conflict")}},
		{berth.Errorf(berth.CodeTooLarge, "no"), 413, Error{"no", invalid, nil, OrNull("request_too_large")}},
		{berth.Errorf(berth.CodeRateLimited, "no"), 429,
			Error{"no", "rate_limit_error", nil, OrNull("rate_limit_exceeded")}},
		{berth.Errorf(berth.CodeUpstream, "no"), 502, Error{"no", "server_error", nil, OrNull("upstream_error")}},
		{berth.Errorf(berth.CodeUnavailable, "no"), 503, Error{"no", "server_error", nil, OrNull("unavailable")}},
		{fmt.Errorf("wrapped: %w", berth.Errorf(berth.CodeNotFound, "no")), 404, Error{"no", invalid, nil, nil}},
		{fmt.Errorf("wrapped: %w", store.ErrNotFound), 404,
			Error{"The requested object was not found.", invalid, nil, nil}},
	}
	for _, tt := range tests {
		status, got := Describe(tt.err, "req_1")
		if diff := cmp.Diff(tt.want, got); status != tt.status || diff != "" {
			t.Errorf("%v: got status %d, want %d; body (-want +got):\n%s", tt.err, status, tt.status, diff)
		}
	}
	for _, err := range []error{errors.New("secret"), berth.Errorf(berth.CodeInternal, "secret"),
		&berth.Error{Code: "strange", Message: "odd"}, nil} {
		status, got := Describe(err, "req_1")
		if status != 500 || got.Type != "server_error" || strings.Contains(got.Message, "secret") {
			t.Errorf("%v: got %d %+v, want 500 and no word of it", err, status, got)
		}
	}
}

// An error due to the host's full or failing disk is answered as that, whatever operation
// failed; a client's own fault, or a container's own full disk, is not.
func TestFullDiskIsReported(t *testing.T) {
	full := fmt.Errorf("write blob: %w", syscall.ENOSPC)
	for _, tt := range []struct {
		err    error
		status int
		code   string
	}{
		{full, http.StatusInsufficientStorage, "insufficient_storage"},
		{fmt.Errorf("write blob: %w", syscall.EDQUOT), http.StatusInsufficientStorage, "insufficient_storage"},
		{fmt.Errorf("append: %w", store.ErrStorage), http.StatusInsufficientStorage, "insufficient_storage"},
		{&berth.Error{Code: berth.CodeUnavailable, Message: "This server cannot store volumes.", Err: full},
			http.StatusInsufficientStorage, "insufficient_storage"},
		{&berth.Error{Code: berth.CodeUnavailable, Wire: "container_start_failed", Message: "x", Err: full},
			http.StatusInsufficientStorage, "insufficient_storage"},
		{&berth.Error{Code: berth.CodeTooLarge, Message: "the disk of container is full", Err: full},
			http.StatusRequestEntityTooLarge, "request_too_large"},
		{errors.New("other"), http.StatusInternalServerError, ""},
	} {
		status, e := Describe(tt.err, "req_1")
		code := ""
		if e.Code != nil {
			code = *e.Code
		}
		if status != tt.status || code != tt.code {
			t.Errorf("%v: got %d %s, want %d %s", tt.err, status, code, tt.status, tt.code)
		}
	}
}
