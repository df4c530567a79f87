package container

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/skills"
	"github.com/berth-run/berth/store"
)

// A CreateRequest describes a container. The parameters in errors about it are
// those of OpenAI's request.
type CreateRequest struct {
	Name string
	// refuse the request if a running container of the project has Name as its unique name
	UniqueName    bool
	MemoryLimit   string                // 1g, 4g, 16g or 64g; default 1g
	ExpiresAfter  *berth.ExpiresAfter   // default ExpiryOptions.IdleMinutes
	NetworkPolicy *berth.NetworkPolicy  // default disabled
	Transforms    []egress.Transform    // of requests to hosts; they grant no access
	FileIDs       []berth.FileID        // copied into berth.WorkDir before the first use
	Skills        []berth.SkillParam    // copied below berth.SkillsDir before the first use
	Env           []string              // KEY=value, of all commands; sealed in the store
	Source        berth.ContainerSource // default: the server's template and expiry

	resolved []*skills.Install // of Skills, if they are known already
}

// Create saves a container and returns it while its sandbox is still being started; the
// first use waits for the start. If the start fails, the container ends with the reason
// "host" and its users get the error.
func (svc *Service) Create(ctx context.Context, caller berth.Caller, req CreateRequest) (*berth.Container, error) {
	pl, err := svc.planner.plan(ctx, caller.Project, req)
	if err != nil {
		return nil, err
	}
	if _, err := svc.creator.create(ctx, caller, pl); err != nil {
		return nil, err
	}
	return pl.body, nil
}

// Get returns a container. As in the hosted service, this counts as a use.
func (svc *Service) Get(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	if s := svc.index.lookup(p, id); s != nil {
		s.touch(svc.opts.clock.Now())
	}
	rec, err := svc.opts.container(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return svc.current(rec), nil
}

// container returns the row of a container. It returns an error for the client if there is no
// row.
func (o *Options) container(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*store.Container, error) {
	rec, err := o.Store.GetContainer(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, berth.NotFound("Container", id)
	}
	if err != nil {
		return nil, fmt.Errorf("read container: %w", err)
	}
	return rec, nil
}

// List returns one page of containers and whether there are more. If name is not empty,
// only containers with that name are listed.
func (svc *Service) List(ctx context.Context, p berth.ProjectID, name string, page store.Page) ([]*berth.Container,
	bool, error) {
	recs, more, err := svc.opts.Store.ListContainers(ctx, p, name, page)
	if err != nil {
		return nil, false, fmt.Errorf("list containers: %w", err)
	}
	list := make([]*berth.Container, len(recs))
	for i, rec := range recs {
		list[i] = svc.current(rec)
	}
	return list, more, nil
}

// current returns a stored container with the state that is not in the store yet.
func (svc *Service) current(rec *store.Container) *berth.Container {
	if s := svc.index.lookup(rec.Project, rec.Body.ID); s != nil && rec.Body.Status == berth.ContainerRunning {
		s.showPause(&rec.Body.Berth)
		rec.Body.LastActiveAt = max(rec.Body.LastActiveAt, s.lastActive(svc.opts.clock.Now()).Unix())
	}
	return rec.Body
}

// Delete ends a container and removes all of it before it returns nil. After an error
// other than CodeNotFound the sweeper retries the removal.
func (svc *Service) Delete(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	rec, err := svc.opts.container(ctx, p, id)
	if err != nil {
		return err
	}
	if s := svc.index.lookup(p, id); s != nil {
		svc.deaths.end(s, reasonDeleted, berth.NotFound("Container", id), nil, nil)
		if err := svc.deaths.remove(s); err != nil {
			return fmt.Errorf("remove sandbox: %w", err)
		}
	}
	if err := svc.snapshots.delete(ctx, p, rec.Body.Berth.LastSnapshot); err != nil {
		return err
	}
	if err := svc.opts.Store.DeleteContainer(ctx, p, id); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("delete container: %w", err)
	}
	return nil
}

func ignoreNotFound(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// asUnavailable returns err if it is for the client, and otherwise an error for the client with
// the message.
func asUnavailable(err error, message string) error {
	if _, ok := errors.AsType[*berth.Error](err); ok {
		return err
	}
	return &berth.Error{Code: berth.CodeUnavailable, Message: message, Err: err}
}
