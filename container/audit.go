package container

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
)

// trail writes what happens to containers into the audit log.
type trail struct{ opts *Options }

// recordCreated records the creation of a container.
func (t *trail) recordCreated(s *instance, key berth.KeyID) {
	if t.opts.Audit == nil {
		return
	}
	entries := []audit.Entry{s.entry(audit.ContainerCreated)}
	entries[0].Template, entries[0].Isolation = s.body.Berth.Template, s.body.Berth.Isolation
	entries[0].Snapshot, entries[0].Object = string(s.body.Berth.FromSnapshot), string(s.body.Berth.ForkedFrom)
	entries = append(entries, t.bound(s, s.network.Load())...)
	for i := range entries {
		entries[i].Key = key
	}
	t.opts.Audit.Record(entries...)
}

// recordEnded records the end of a container. It returns when the entry is durable.
func (t *trail) recordEnded(ctx context.Context, s *instance, reason string, left berth.SnapshotID) error {
	e := s.entry(audit.ContainerEnded)
	e.Reason, e.Snapshot = reason, string(left)
	t.opts.Audit.Record(s.flows.rest(s)...)
	return t.opts.Audit.Commit(ctx, e)
}

// recordErased records that a container's content was erased. It returns when the entry is
// durable.
func (t *trail) recordErased(ctx context.Context, s *instance) error {
	e := s.entry(audit.ContainerErased)
	e.Reason = t.erasure()
	return t.opts.Audit.Commit(ctx, e)
}

// erasure returns how destroyed sandboxes are erased: the key of their content is destroyed, or
// their files are removed, which may leave their blocks readable on the volume.
func (t *trail) erasure() string {
	if t.opts.Driver.Features().Erases {
		return "key_destroyed"
	}
	return "files_removed"
}

// bound returns entries for the secrets of a network, which may be nil, and for those that its transforms name.
func (t *trail) bound(s *instance, n *network) (entries []audit.Entry) {
	if n == nil {
		return nil
	}
	add := func(name, host string) {
		e := s.entry(audit.SecretBound)
		e.Name, e.Host = name, host
		entries = append(entries, e)
	}
	for _, secret := range n.secrets {
		add(secret.Name, secret.Domain)
	}
	for _, tr := range n.present().transforms {
		for _, name := range tr.Secrets() {
			add(name, tr.Host)
		}
	}
	return entries
}

func (s *instance) entry(a audit.Action) audit.Entry {
	return audit.Entry{Action: a, Project: s.project, Container: s.id}
}

// recordMissed records the creation of running containers that a crash left out of the
// audit log. The store is written first, so it has them.
func (t *trail) recordMissed(running []*store.Container) {
	living := t.opts.Audit.Living()
	for _, rec := range running {
		if _, ok := living[rec.Body.ID]; !ok {
			t.opts.Audit.Record(audit.Entry{Action: audit.ContainerCreated, Project: rec.Project,
				Container: rec.Body.ID,
				Template:  rec.Body.Berth.Template, Isolation: rec.Body.Berth.Isolation, Recovered: true})
		}
	}
}

// recordLost records the ends of containers that a crash left out of the audit log: those that
// have an entry and do not run. exist lists the sandboxes that are not removed.
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
				return fmt.Errorf("read container %s: %w", id, err)
			case rec.Body.Status == berth.ContainerRunning && t.opts.placement.other(rec.Body) != "":
				e.Action, e.Object = audit.ContainerMoved, rec.Body.Berth.Server
				entries = append(entries, e)
				continue
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
