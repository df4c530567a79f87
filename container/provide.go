package container

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// autoName is the name of containers created for a shell tool.
const autoName = "container_auto"

// Provide returns the container for a shell tool's environment, with the environment's files and
// skills in it. It is the container that the environment names. For container_auto it is the last
// container of the response's chain if that still runs, and otherwise a new one. If the last
// one expired with a snapshot, the new one starts from the snapshot and has its settings. If
// the snapshot is missing, Provide returns an error unless the environment has on_lost new.
//
// A new container without settings is reserved only: the first use creates it. The caller must
// call Release once for each container when it does not need it any more.
func (svc *Service) Provide(ctx context.Context, caller berth.Caller, env berth.ShellToolEnvironment,
	last berth.ContainerID) (berth.ContainerID, error) {
	p := caller.Project
	if env.Type == berth.EnvironmentReference {
		return env.ContainerID, svc.leases.reserve(ctx, p, env.ContainerID)
	}
	req := CreateRequest{Name: autoName, MemoryLimit: env.MemoryLimit, NetworkPolicy: env.NetworkPolicy,
		FileIDs: env.FileIDs}
	if env.Berth != nil {
		req.Source = *env.Berth
	}
	var err error
	if req.Skills, err = skillParams(env); err != nil {
		return "", err
	}
	if last != "" {
		pl, err := svc.planner.plan(ctx, p, req)
		if err != nil {
			return "", err
		}
		req.resolved = pl.skills
		held := last
		if err = svc.leases.reserve(ctx, p, last); err != nil {
			held = ""
		}
		s := svc.index.lookup(p, last)
		if err == nil && (s == nil || !s.accepts(env.NetworkPolicy)) {
			last = "" // its network policy differs from the request's
		}
		if err == nil && last != "" {
			err = svc.files.Add(ctx, p, last, env.FileIDs)
		}
		if err == nil && last != "" {
			err = svc.addSkills(ctx, p, last, pl)
		}
		if err == nil && last != "" {
			return last, nil
		}
		svc.Release(p, held)
		if s := svc.index.lookup(p, last); s != nil && s.life.Err() == nil {
			return "", err
		}
		if last != "" {
			if req, err = svc.continued(ctx, p, req, last); err != nil {
				return "", err
			}
		}
	}
	pl, err := svc.planner.plan(ctx, p, req)
	if err != nil {
		return "", err
	}
	if env.Bare() && pl.from == nil {
		err = svc.reserve(ctx, caller, pl, true)
	} else {
		_, err = svc.create(ctx, caller, pl)
	}
	if err != nil {
		return "", err
	}
	return pl.body.ID, nil
}

// continued returns the request for a container that replaces one that has ended. If the old
// one has a snapshot, the new one starts from it, and takes the settings that the request lacks
// from the old one.
func (svc *Service) continued(ctx context.Context, p berth.ProjectID, req CreateRequest,
	last berth.ContainerID) (CreateRequest, error) {
	rec, err := svc.opts.Store.GetContainer(ctx, p, last)
	if errors.Is(err, store.ErrNotFound) {
		return req, nil
	}
	if err != nil {
		return req, err
	}
	was := rec.Body
	if was.Status == berth.ContainerRunning { // the store does not have its end yet
		return req, svc.leases.reserve(ctx, p, last)
	}
	if was.Berth.LastSnapshot != "" {
		_, err = svc.snapshots.get(ctx, p, was.Berth.LastSnapshot)
	}
	switch gone := berth.ErrorCode(err) == berth.CodeNotFound; {
	case err != nil && !gone:
		return req, err
	case !gone && was.Berth.LastSnapshot != "":
	case was.Berth.OnExpiry == berth.OnExpirySnapshot && req.Source.OnLost != berth.OnLostNew:
		return req, snapshotLostError(was)
	default:
		return req, nil
	}
	req.Source = berth.ContainerSource{SnapshotID: was.Berth.LastSnapshot, OnExpiry: cmp.Or(req.Source.OnExpiry,
		was.Berth.OnExpiry),
		KeepAwake: req.Source.KeepAwake || was.Berth.KeepAwake}
	req.MemoryLimit = cmp.Or(req.MemoryLimit, was.MemoryLimit)
	if req.ExpiresAfter == nil {
		req.ExpiresAfter = &was.ExpiresAfter
	}
	if req.NetworkPolicy == nil {
		req.NetworkPolicy = &was.NetworkPolicy // without its secrets, which were deleted with it
	}
	return req, nil
}

// snapshotLostError returns the error for a chain whose container has ended and whose snapshot
// is missing.
func snapshotLostError(was *berth.Container) error {
	e := goneError(was, was.Berth.Reason)
	e.Message = strings.TrimSuffix(e.Message, ".")
	if was.Berth.LastSnapshot != "" {
		e.Message += ", which is gone too"
	}
	e.Message += ". To get a new container instead, set 'berth.on_lost' to 'new' in the environment."
	return e
}

// reserve records a use of a container by a response. It returns an error if the container has
// ended.
func (ls *leases) reserve(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	s, err := ls.find(ctx, p, id)
	if err != nil {
		return err
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release(ls.opts.clock.Now())
	s.promise()
	return nil
}
