package server

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/bash"
	"github.com/berth-run/berth/guest"
)

// shells returns the sessions of clients of SWE-ReX.
func shells(access *container.Access) *bash.Service {
	return bash.New(bash.Options{Start: func(ctx context.Context, c berth.Caller, id berth.ContainerID,
		req guest.ProcessRequest) (bash.Handle, error) {
		p, err := access.Start(ctx, c, id, req)
		if err != nil {
			return nil, err // a nil *container.Process would not be a nil Handle
		}
		return p, nil
	}})
}
