package engine

import (
	"context"

	"github.com/berth-run/berth"
)

// A Quota bounds the responses of projects; *project.Quota is one.
type Quota interface {
	// Begin reserves an estimated number of tokens for a response of a caller, or returns an
	// error for the client. end must be called with the number of tokens used, which is
	// negative if the request is forwarded to another server, which counts it.
	Begin(ctx context.Context, c berth.Caller, tokens int) (end func(used int), err error)
	// Full returns an error for the client if the project has reached its storage limit.
	Full(ctx context.Context, p berth.ProjectID) error
	// Resume counts a response that an earlier process of this server has started.
	Resume(p berth.ProjectID) (end func(used int))
}

// noQuota bounds nothing.
type noQuota struct{}

func (noQuota) Begin(context.Context, berth.Caller, int) (func(int), error) {
	return func(int) {}, nil
}

func (noQuota) Full(context.Context, berth.ProjectID) error { return nil }

func (noQuota) Resume(berth.ProjectID) func(int) { return func(int) {} }

// quotaInterval is the number of output bytes between two checks of the project's storage
// limit.
const quotaInterval = 256 << 10
