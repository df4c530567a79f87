package container

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/store"
)

// Of a container's connections so many are told of one by one; a hostile one can
// make thousands a second. Of the others the sums are.
const (
	flowBurst = 100
	flowEvery = 250 * time.Millisecond
)

// trail writes what happens to containers into the audit log.
type trail struct{ opts *Options }

// recordCreated says in the audit record that a container was created.
func (t *trail) recordCreated(s *instance, key berth.KeyID) {
	if t.opts.Audit == nil {
		return
	}
	entries := []audit.Entry{s.entry(audit.ContainerCreated)}
	entries[0].Template, entries[0].Isolation = s.body.Berth.Template, s.body.Berth.Isolation
	entries[0].Snapshot = string(s.body.Berth.FromSnapshot)
	if s.network != nil {
		for _, secret := range s.network.secrets {
			e := s.entry(audit.SecretBound)
			e.Name, e.Host = secret.Name, secret.Domain
			entries = append(entries, e)
		}
	}
	for i := range entries {
		entries[i].Key = key
	}
	t.opts.Audit.Record(entries...)
}

// recordEnded returns when the end of a container is in the audit record.
func (t *trail) recordEnded(ctx context.Context, s *instance, reason string, kept berth.SnapshotID) error {
	e := s.entry(audit.ContainerEnded)
	e.Reason, e.Snapshot = reason, string(kept)
	t.opts.Audit.Record(s.flows.rest(s)...)
	return t.opts.Audit.Commit(ctx, e)
}

// recordErased returns when it is in the audit record that nothing is left of a
// container.
func (t *trail) recordErased(ctx context.Context, s *instance) error {
	e := s.entry(audit.ContainerErased)
	e.Reason = t.erasure()
	return t.opts.Audit.Commit(ctx, e)
}

// erasure says how far nothing is left of a sandbox that was destroyed: its content
// was encrypted with a key that is gone, or its files were removed and the volume
// does with their blocks as it does.
func (t *trail) erasure() string {
	if t.opts.Driver.Features().Erases {
		return "key_destroyed"
	}
	return "files_removed"
}

// maxHistory bounds what History returns.
const maxHistory = 1000

// History returns what the audit record says of a container, which may have been
// deleted long ago, and the record's last signed checkpoint: the newest entries if
// there are more than maxHistory.
func (k *Service) History(ctx context.Context, p berth.ProjectID, id berth.ContainerID) ([]*audit.Entry, string, error) {
	entries, err := k.opts.Audit.OfContainer(ctx, p, id, maxHistory)
	if err == nil && len(entries) == 0 {
		if _, err = k.opts.Store.GetContainer(ctx, p, id); errors.Is(err, store.ErrNotFound) {
			err = notFound(id)
		}
		entries = []*audit.Entry{} // they will be written soon
	}
	return entries, k.opts.Audit.Checkpoint(), err
}

func (s *instance) entry(a audit.Action) audit.Entry {
	return audit.Entry{Action: a, Project: s.project, Container: s.id}
}

// recordFlow says in the audit record that a connection began, ended or was refused.
func (t *trail) recordFlow(s *instance, f egress.Flow) {
	if t.opts.Audit != nil {
		t.opts.Audit.Record(s.flows.add(s, f)...)
	}
}

// flows are the connections of a container that the audit record has still to be
// told of.
type flows struct {
	mu          sync.Mutex
	often, used *rate.Limiter
	more        audit.Entry   // of those that are not told of one by one
	uses        map[use]int64 // of secrets, that are not told of one by one
}

// A use is of a secret toward a host.
type use struct {
	name, host string
	port       int
}

// maxUses is how many of them are told from each other; others are of no host.
const maxUses = 256

// add returns the entries for a connection.
func (fs *flows) add(s *instance, f egress.Flow) []audit.Entry {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var entries []audit.Entry
	if fs.often == nil {
		fs.often, fs.used = rate.NewLimiter(rate.Every(flowEvery), flowBurst), rate.NewLimiter(rate.Every(flowEvery), flowBurst)
		fs.uses = map[use]int64{}
	}
	for _, name := range f.Secrets {
		u := use{name, f.Target.Host, f.Target.Port}
		if fs.used.Allow() {
			entries = append(entries, u.entry(s))
			continue
		}
		if _, known := fs.uses[u]; !known && len(fs.uses) >= maxUses {
			u = use{name: name}
		}
		fs.uses[u]++
	}
	if !fs.often.Allow() {
		if !f.Begins { // it is told of again
			fs.more.Count++
			fs.more.Sent += f.Sent
			fs.more.Received += f.Received
			if !f.Allowed {
				fs.more.Refused++
			}
		}
		return entries
	}
	e := s.entry(audit.EgressEnded)
	switch {
	case !f.Allowed:
		e.Action = audit.EgressRefused
	case f.Begins:
		e.Action = audit.EgressConnected
	}
	e.Host, e.Port, e.Reason = f.Target.Host, f.Target.Port, f.Reason
	e.Sent, e.Received, e.Milliseconds = f.Sent, f.Received, f.Took.Milliseconds()
	if f.Addr.IsValid() {
		e.Address = f.Addr.String()
	}
	return append(append(entries, fs.restLocked(s)...), e)
}

// rest returns the entry for the connections that were not told of one by one, if
// there are any.
func (fs *flows) rest(s *instance) []audit.Entry {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.restLocked(s)
}

func (fs *flows) restLocked(s *instance) []audit.Entry {
	var entries []audit.Entry
	for u, n := range fs.uses {
		e := u.entry(s)
		e.Count = n
		entries = append(entries, e)
	}
	clear(fs.uses)
	if fs.more.Count == 0 {
		return entries
	}
	e := s.entry(audit.EgressMore)
	e.Count, e.Refused, e.Sent, e.Received = fs.more.Count, fs.more.Refused, fs.more.Sent, fs.more.Received
	fs.more = audit.Entry{}
	return append(entries, e)
}

func (u use) entry(s *instance) audit.Entry {
	e := s.entry(audit.SecretUsed)
	e.Name, e.Host, e.Port = u.name, u.host, u.port
	return e
}

// recordMissed puts running containers into the audit record that a crash kept
// from it. What the store says of containers is true: it is written first.
func (t *trail) recordMissed(running []*store.Container) {
	living := t.opts.Audit.Living()
	for _, rec := range running {
		if _, ok := living[rec.Body.ID]; !ok {
			t.opts.Audit.Record(audit.Entry{Action: audit.ContainerCreated, Project: rec.Project, Container: rec.Body.ID,
				Template: rec.Body.Berth.Template, Isolation: rec.Body.Berth.Isolation, Recovered: true})
		}
	}
}

// recordLost puts the ends of containers into the audit record that a crash kept
// from it: of those that are in it and do not run any more. exist are the sandboxes
// of which something is left.
func (t *trail) recordLost(ctx context.Context, running []*store.Container, exist []string) error {
	living := t.opts.Audit.Living()
	for _, rec := range running {
		delete(living, rec.Body.ID)
	}
	var entries []audit.Entry
	for _, id := range exist {
		delete(living, berth.ContainerID(id))
	}
	for id, life := range living {
		e := audit.Entry{Project: life.Project, Container: id, Recovered: true}
		if !life.Ended {
			rec, err := t.opts.Store.GetContainer(ctx, life.Project, id)
			switch {
			case errors.Is(err, store.ErrNotFound):
				e.Reason = reasonDeleted
			case err != nil:
				return fmt.Errorf("sandbox: reading a container: %w", err)
			default:
				e.Reason, e.Snapshot = rec.Body.Berth.Reason, string(rec.Body.Berth.LastSnapshot)
			}
			e.Action = audit.ContainerEnded
			entries = append(entries, e)
			e.Snapshot = ""
		}
		e.Action, e.Reason = audit.ContainerErased, t.erasure()
		entries = append(entries, e)
	}
	return t.opts.Audit.Commit(ctx, entries...)
}
