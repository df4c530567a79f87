package server

import "github.com/berth-run/berth/schedules"

// newSchedules opens the schedules. Their Run runs them.
func newSchedules(b *base) *schedules.Service {
	return schedules.New(schedules.Options{Objects: b.db, Audit: b.audit, Log: b.Log})
}
