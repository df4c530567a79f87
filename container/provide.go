package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/skills"
	"github.com/berth-run/berth/store"
)

// autoName is the name of containers created for a shell tool.
const autoName = "container_auto"

// maxProvided bounds the files that Provider.Files returns.
const maxProvided = 10_000

// A Provider provides the containers in which calls of responses run.
type Provider struct {
	opts      *Options
	index     *index
	leases    *leases
	files     *Files
	snapshots *Snapshots
	planner   *planner
	creator   *creator
}

// Provide returns the container for a shell tool's environment, with the environment's files and
// skills in it. It is the container that the environment names. For container_auto it is the last
// container of the response's chain if that still runs, and otherwise a new one. If the last
// one expired with a snapshot, the new one starts from the snapshot and has its settings. If
// the snapshot is missing, Provide returns an error unless the environment has on_lost new.
//
// A new container without settings is reserved only: the first use creates it. The caller must
// call Release once for each container when it does not need it any more.
func (pr *Provider) Provide(ctx context.Context, caller berth.Caller, env berth.ShellToolEnvironment,
	last berth.ContainerID) (berth.ContainerID, error) {
	p := caller.Project
	if err := pr.checkEndUser(ctx, caller, cmp.Or(env.ContainerID, last)); err != nil {
		return "", err
	}
	if env.Type == berth.EnvironmentReference {
		return env.ContainerID, pr.leases.reserve(ctx, p, env.ContainerID)
	}
	req := CreateRequest{Name: autoName, Unnamed: true, MemoryLimit: env.MemoryLimit, NetworkPolicy: env.NetworkPolicy,
		FileIDs: env.FileIDs}
	if env.Berth != nil {
		req.Source = *env.Berth
	}
	var err error
	if req.Skills, err = skillParams(env); err != nil {
		return "", err
	}
	if last == "" && caller.Subject != nil && caller.Subject.Computer != "" {
		return pr.provideComputer(ctx, caller, env, req)
	}
	if last != "" {
		reused, ended, err := pr.reuse(ctx, p, env, last, &req)
		if err != nil {
			return "", err
		}
		if reused {
			return last, nil
		}
		if ended {
			if req, err = pr.continued(ctx, p, req, last); err != nil {
				return "", err
			}
		}
	}
	return pr.provideNew(ctx, caller, env, req)
}

// provideNew creates a container, or reserves it for the first use if it has no settings.
func (pr *Provider) provideNew(ctx context.Context, caller berth.Caller, env berth.ShellToolEnvironment,
	req CreateRequest) (berth.ContainerID, error) {
	pl, err := pr.planner.plan(ctx, caller.Project, req)
	if err != nil {
		return "", err
	}
	if env.Bare() && pl.from == nil {
		err = pr.creator.reserve(ctx, caller, pl, true)
	} else {
		_, err = pr.creator.create(ctx, caller, pl)
	}
	if err != nil {
		return "", err
	}
	return pl.body.ID, nil
}

// reuse adds the files and skills of an environment to the last container, and reserves it. It does not if the
// network policy of the container is another, nor if the container has ended.
func (pr *Provider) reuse(ctx context.Context, p berth.ProjectID, env berth.ShellToolEnvironment,
	last berth.ContainerID, req *CreateRequest) (reused, ended bool, err error) {
	pl, err := pr.planner.plan(ctx, p, *req)
	if err != nil {
		return false, false, err
	}
	req.resolved = pl.skills
	if err = pr.leases.reserve(ctx, p, last); err == nil {
		if s := pr.index.lookup(p, last); s == nil || !s.accepts(env.NetworkPolicy) {
			pr.Release(p, last)
			return false, false, nil
		}
		if err = pr.files.Add(ctx, p, last, env.FileIDs); err == nil {
			err = pr.addSkills(ctx, p, last, pl)
		}
		if err == nil {
			return true, false, nil
		}
		pr.Release(p, last)
	}
	if s := pr.index.lookup(p, last); s != nil && s.life.Err() == nil {
		return false, false, err
	}
	return false, true, nil
}

// continued returns the request for a container that replaces one that has ended. If the old
// one has a snapshot, the new one starts from it, and takes the settings that the request lacks
// from the old one.
func (pr *Provider) continued(ctx context.Context, p berth.ProjectID, req CreateRequest,
	last berth.ContainerID) (CreateRequest, error) {
	rec, err := pr.opts.Store.GetContainer(ctx, p, last)
	if errors.Is(err, store.ErrNotFound) {
		return req, nil
	}
	if err != nil {
		return req, err
	}
	was := rec.Body
	if was.Status == berth.ContainerRunning { // the store does not have its end yet
		return req, pr.leases.reserve(ctx, p, last)
	}
	if was.Berth.LastSnapshot != "" {
		_, err = pr.snapshots.get(ctx, p, was.Berth.LastSnapshot)
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
		KeepAwake: req.Source.KeepAwake || was.Berth.KeepAwake, Network: cmp.Or(req.Source.Network, was.Berth.Network)}
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

// Reserve reserves a container for a response that a former process left, under the id that the
// response has. It does nothing if the container exists. Release must follow.
func (pr *Provider) Reserve(ctx context.Context, caller berth.Caller, id berth.ContainerID) error {
	p := caller.Project
	if pr.index.lookup(p, id) != nil {
		if err := pr.leases.reserve(ctx, p, id); err != nil && ctx.Err() != nil {
			return err
		}
		return nil // one that has ended is reported by its use
	}
	_, err := pr.opts.container(ctx, p, id)
	if berth.ErrorCode(err) != berth.CodeNotFound {
		return err
	}
	pl, err := pr.planner.plan(ctx, p, CreateRequest{Name: autoName})
	if err != nil {
		return err
	}
	pl.body.ID = id
	return pr.creator.reserve(ctx, caller, pl, false)
}

// Begin creates a reserved container before its first use. It returns while the sandbox is
// still being started, and does nothing for other containers.
func (pr *Provider) Begin(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	s := pr.index.lookup(p, id)
	if s == nil {
		return nil
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	err := pr.leases.reservations.create(ctx, s)
	s.release(pr.opts.clock.Now())
	if err != nil {
		pr.leases.reservations.drop(s)
	}
	return err
}

// Release ends a response's need for a container that Provide or Reserve returned to it. A
// reserved container that was not used is dropped with the last response that has its id.
func (pr *Provider) Release(p berth.ProjectID, id berth.ContainerID) {
	s := pr.index.lookup(p, id)
	if s == nil || s.reserved == nil {
		return
	}
	s.reserved.mu.Lock()
	defer s.reserved.mu.Unlock()
	s.reserved.promises--
	pr.leases.reservations.dropLocked(s)
}

// Template returns the digest of a container's template. It is no use of the container.
func (pr *Provider) Template(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (string, error) {
	if s := pr.index.lookup(p, id); s != nil {
		return s.body.Berth.Template, nil
	}
	rec, err := pr.opts.container(ctx, p, id)
	if err != nil {
		return "", err
	}
	return rec.Body.Berth.Template, nil
}

// addSkills copies the skills of a plan that a running container does not have yet.
func (pr *Provider) addSkills(ctx context.Context, p berth.ProjectID, id berth.ContainerID, pl *plan) error {
	if len(pl.skills) == 0 {
		return nil
	}
	s, ctx, release, err := pr.leases.use(ctx, p, id)
	if err != nil {
		return err
	}
	defer release()
	if err := s.files.lock.acquire(ctx); err != nil {
		return err
	}
	defer s.files.lock.release()
	have := s.listSkills()
	missing := slices.DeleteFunc(slices.Clone(pl.skills), func(it *skills.Install) bool {
		return slices.Contains(have, it.Skill)
	})
	merged, err := mergeSkills(have, missing)
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := copySkills(ctx, pr.opts, pr.snapshots, s, missing); err != nil {
		if err := pr.files.hostFull(ctx, s); err != nil {
			return err
		}
		return pr.leases.explain(ctx, s, err)
	}
	if _, err := pr.opts.Store.UpdateContainer(ctx, p, id, func(c *berth.Container) error {
		c.Berth.Skills = merged
		return nil
	}); err != nil {
		return fmt.Errorf("save skills of container: %w", err)
	}
	s.mu.Lock()
	s.skills = merged
	s.mu.Unlock()
	return nil
}

// Files returns the current files in the working directory of a container, up to a limit.
func (pr *Provider) Files(ctx context.Context, p berth.ProjectID, id berth.ContainerID) ([]*berth.ContainerFile,
	error) {
	files, _, err := pr.files.List(ctx, p, id, store.Page{Limit: maxProvided})
	return files, err
}
