package server

import (
	"github.com/berth-run/berth/approvals"
	"github.com/berth-run/berth/store"
)

// newApprovals returns the questions of all projects.
func newApprovals(b *base) *approvals.Service {
	opts := approvals.Options{Objects: b.db, Audit: b.audit}
	if w, ok := b.disk.(store.Watcher); ok {
		opts.Watcher = w
	}
	return approvals.New(opts)
}
