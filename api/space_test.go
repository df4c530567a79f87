package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// What comes of the host's full or failing disk is told as that, whatever met it; what
// is a client's own fault, or a container's own full disk, is not.
func TestFullDiskIsTold(t *testing.T) {
	full := fmt.Errorf("write blob: %w", syscall.ENOSPC)
	for _, tt := range []struct {
		err    error
		status int
		code   string
	}{
		{full, http.StatusInsufficientStorage, "insufficient_storage"},
		{fmt.Errorf("write blob: %w", syscall.EDQUOT), http.StatusInsufficientStorage, "insufficient_storage"},
		{fmt.Errorf("append: %w", store.ErrStorage), http.StatusInsufficientStorage, "insufficient_storage"},
		{&berth.Error{Code: berth.CodeUnavailable, Message: "This server cannot keep volumes.", Err: full}, http.StatusInsufficientStorage, "insufficient_storage"},
		{&berth.Error{Code: berth.CodeUnavailable, Wire: "container_start_failed", Message: "x", Err: full}, http.StatusInsufficientStorage, "insufficient_storage"},
		{&berth.Error{Code: berth.CodeTooLarge, Message: "the disk of container is full", Err: full}, http.StatusRequestEntityTooLarge, "request_too_large"},
		{errors.New("other"), http.StatusInternalServerError, ""},
	} {
		status, e := describe(tt.err, "req_1")
		code := ""
		if e.Code != nil {
			code = *e.Code
		}
		if status != tt.status || code != tt.code {
			t.Errorf("%v: got %d %s, want %d %s", tt.err, status, code, tt.status, tt.code)
		}
	}
}

// The routes that are served while disk space is low are routes.
func TestSpacelessRoutes(t *testing.T) {
	for _, pattern := range spaceless {
		if !slices.ContainsFunc(routes, func(rt route) bool { return rt.pattern() == pattern }) {
			t.Errorf("there is no route %q", pattern)
		}
	}
}
