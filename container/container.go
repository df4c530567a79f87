package container

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A CreateRequest describes a container. The parameters in errors about it are
// those of OpenAI's request.
type CreateRequest struct {
	Name          string
	MemoryLimit   string                // 1g, 4g, 16g or 64g; default 1g
	ExpiresAfter  *berth.ExpiresAfter   // default ExpiryOptions.IdleMinutes
	NetworkPolicy *berth.NetworkPolicy  // default disabled
	FileIDs       []berth.FileID        // put into berth.WorkDir before the first use
	Env           []string              // KEY=value, of all commands; sealed in the store
	Source        berth.ContainerSource // default the server's template, and its way of expiring
}

// Create saves a container and returns it while its sandbox is still being
// started; the first use waits for that. If it cannot be started, the container
// ends with the reason "host" and whoever waits is told why.
func (k *Service) Create(ctx context.Context, caller berth.Caller, req CreateRequest) (*berth.Container, error) {
	pl, err := k.planner.plan(ctx, caller.Project, req)
	if err != nil {
		return nil, err
	}
	return k.create(ctx, caller, pl)
}

// create makes what was planned.
func (k *Service) create(ctx context.Context, caller berth.Caller, pl *plan) (*berth.Container, error) {
	p, body := caller.Project, pl.body
	if err := k.opts.Room(); err != nil {
		return nil, err
	}
	most, err := k.opts.Quota(ctx, p)
	if err != nil {
		return nil, err
	}
	var s *instance
	if pl.memory() == nil && len(body.Berth.Volumes) == 0 { // which a sandbox must be made with
		s = k.pools.claim(body.Berth.Template, body.MemoryLimit)
	}
	if s == nil {
		s = k.leases.newInstance(p, body)
	} else {
		body.ID = s.id
		s.assign(p, body)
	}
	s.requestID = caller.RequestID
	if s.network = pl.network; s.network == nil {
		s.network, err = k.networks.parse(body.ID, pl.policy)
	}
	if err == nil {
		err = k.index.register(s, k.opts.Bounds.Containers, most)
	}
	if err != nil {
		k.pools.unclaim(s)
		return nil, err
	}
	if err := k.volumes.hold(ctx, s); err != nil {
		k.index.unregister(s)
		return nil, err
	}
	if err := k.saveNew(ctx, s, pl, caller.Key); err != nil {
		// It may have been saved all the same; nobody knows its id.
		err = errors.Join(err, ignoreNotFound(k.opts.Store.DeleteContainer(context.WithoutCancel(ctx), p, body.ID)))
		if s.pool != nil {
			k.pools.discard(s)
		} else {
			k.index.unregister(s)
		}
		return nil, err
	}
	k.trail.recordCreated(s, caller.Key)
	if !k.work.spawn(func() { k.starter.launch(s, pl) }) {
		k.deaths.end(s, reasonDeleted, errStopping, nil, nil) // the caller does not learn its id
		return nil, errStopping
	}
	return body, nil
}

// saveNew saves a container with all that its start needs, in one write: from then on
// a crash of the server loses nothing of it.
func (k *Service) saveNew(ctx context.Context, s *instance, pl *plan, key berth.KeyID) error {
	start, err := k.records.object(s, pl)
	if err != nil {
		return fmt.Errorf("encode start record: %w", err)
	}
	also := []*store.Object{start}
	secrets, err := k.networks.secretsObject(s)
	if err != nil {
		return fmt.Errorf("encode secrets: %w", err)
	}
	if secrets != nil {
		also = append(also, secrets)
	}
	return k.opts.Store.CreateContainer(ctx, &store.Container{Project: s.project, Key: key, Body: pl.body}, also...)
}

// checkFiles returns an error unless all files are there.
func (fl *Files) checkUploads(ctx context.Context, p berth.ProjectID, ids []berth.FileID) error {
	for i, id := range ids {
		body, _, err := fl.opts.OpenFile(ctx, p, id)
		if err != nil {
			return atFile(err, i)
		}
		body.Close()
	}
	return nil
}

// atFile completes an error about the i-th of a request's files.
func atFile(err error, i int) error {
	e, ok := errors.AsType[*berth.Error](err)
	if !ok {
		return err
	}
	at := *e
	at.Param = fmt.Sprintf("file_ids[%d]", i)
	return &at
}

// Get returns a container. As in the hosted service, that counts as a use.
func (k *Service) Get(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	if s := k.index.lookup(p, id); s != nil {
		s.touch(k.opts.now())
	}
	rec, err := k.opts.Store.GetContainer(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, err
	}
	return k.current(rec), nil
}

// List returns one page of containers and whether there is more; name "" is any.
func (k *Service) List(ctx context.Context, p berth.ProjectID, name string, page store.Page) ([]*berth.Container, bool, error) {
	recs, more, err := k.opts.Store.ListContainers(ctx, p, name, page)
	if err != nil {
		return nil, false, err
	}
	list := make([]*berth.Container, len(recs))
	for i, rec := range recs {
		list[i] = k.current(rec)
	}
	return list, more, nil
}

// current returns a container as stored, with what the store learns later.
func (k *Service) current(rec *store.Container) *berth.Container {
	if s := k.index.lookup(rec.Project, rec.Body.ID); s != nil && rec.Body.Status == berth.ContainerRunning {
		rec.Body.Berth.Paused = s.isPaused()
		rec.Body.LastActiveAt = max(rec.Body.LastActiveAt, s.lastActive(k.opts.now()).Unix())
	}
	return rec.Body
}

// Delete ends a container and removes all of it; when it returns nil, nothing is
// left. If it returns an error other than CodeNotFound, the removal will be tried again.
func (k *Service) Delete(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	rec, err := k.opts.Store.GetContainer(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return notFound(id)
	}
	if err != nil {
		return err
	}
	if s := k.index.lookup(p, id); s != nil {
		k.deaths.end(s, reasonDeleted, notFound(id), nil, nil)
		if err := k.deaths.remove(s); err != nil {
			return err
		}
	}
	if err := k.snapshots.delete(ctx, p, rec.Body.Berth.LastSnapshot); err != nil {
		return err
	}
	return ignoreNotFound(k.opts.Store.DeleteContainer(ctx, p, id))
}

func ignoreNotFound(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// asUnavailable gives an error that says nothing to the client words that do.
func asUnavailable(err error, message string) error {
	if _, ok := errors.AsType[*berth.Error](err); ok {
		return err
	}
	return &berth.Error{Code: berth.CodeUnavailable, Message: message, Err: err}
}
