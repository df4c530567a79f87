package container

import (
	"context"

	"github.com/berth-run/berth"
)

// Running returns the number of a project's containers on this server.
func (svc *Service) Running(p berth.ProjectID) int {
	svc.index.mu.Lock()
	defer svc.index.mu.Unlock()
	return svc.index.countLocked(p, "")
}

// share reports a registered instance to Options.Shares, and its end.
func (o *Options) share(s *instance) {
	if shares, p := o.Shares, s.project; shares != nil {
		shares.ContainersChanged(p)
		context.AfterFunc(s.life, func() { shares.ContainersChanged(p) })
	}
}
