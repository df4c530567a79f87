package api

import (
	"github.com/berth-run/berth/api/swerex"
	"github.com/berth-run/berth/container/bash"
)

// newSWEReX returns the door of SWE-ReX's runtime, or nil if it is not served.
func newSWEReX(o Options) *swerex.Door {
	if o.Shells == nil {
		return nil
	}
	return swerex.New(swerex.Options{Containers: o.Containers, Shells: o.Shells})
}

// Shells are the sessions of SWE-ReX's clients.
type Shells = bash.Service
