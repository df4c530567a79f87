package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox/driver"
	"github.com/berth-run/berth/store"
)

// A CreateRequest describes a container. The parameters in errors about it are
// those of OpenAI's request.
type CreateRequest struct {
	Name          string
	MemoryLimit   string               // 1g, 4g, 16g or 64g; default 1g
	ExpiresAfter  *berth.ExpiresAfter  // default Options.IdleMinutes
	NetworkPolicy *berth.NetworkPolicy // default disabled
	FileIDs       []berth.FileID       // put into berth.WorkDir before the first use
	Env           []string             // KEY=value, of all commands; not kept in the store
}

// Create saves a container and returns it while its sandbox is still being
// started; the first use waits for that. If it cannot be started, the container
// ends with the reason "host" and whoever waits is told why.
func (k *Keeper) Create(ctx context.Context, caller berth.Caller, req CreateRequest) (*berth.Container, error) {
	p := caller.Project
	body, err := k.newContainer(ctx, p, req)
	if err != nil {
		return nil, err
	}
	digest, rootfs, err := k.opts.Template()
	if err != nil {
		return nil, asUnavailable(err, "This server has no template to start containers from.")
	}
	body.Berth.Template = digest
	most, err := k.opts.Quota(ctx, p)
	if err != nil {
		return nil, err
	}
	s := k.pool.claim(digest, body.MemoryLimit)
	if s == nil {
		s = k.newSandbox(p, body)
	} else {
		body.ID = s.id
		s.assign(p, body)
	}
	s.asked = caller.RequestID
	if s.network, err = k.newNetwork(body.ID, req.NetworkPolicy); err == nil {
		err = k.enter(s, k.opts.MaxContainers, most)
	}
	if err != nil {
		k.pool.unclaim(s)
		return nil, err
	}
	spec := k.spec(body, rootfs)
	spec.Env = req.Env
	if err := k.opts.Store.CreateContainer(ctx, &store.Container{Project: p, Key: caller.Key, Body: body}); err != nil {
		// It may have been saved all the same; nobody knows its id.
		err = errors.Join(err, ignoreNotFound(k.opts.Store.DeleteContainer(context.WithoutCancel(ctx), p, body.ID)))
		if s.pooled {
			k.discard(s)
		} else {
			k.leave(s)
		}
		return nil, err
	}
	if err := k.saveSecrets(ctx, s); err != nil {
		k.bury(s, reasonHost, startError(s.id, err), err, nil)
		return nil, err
	}
	if !k.spawn(func() { k.launch(s, spec, req.FileIDs) }) {
		return nil, errStopping
	}
	return body, nil
}

// spec returns what a container's sandbox is made from.
func (k *Keeper) spec(c *berth.Container, rootfs string) driver.Spec {
	limits := k.opts.Limits
	limits.Memory = berth.MemoryLimits[c.MemoryLimit]
	return driver.Spec{ID: string(c.ID), Rootfs: rootfs, Limits: limits.WithDefaults()}
}

// newContainer checks a request and returns its container.
func (k *Keeper) newContainer(ctx context.Context, p berth.ProjectID, req CreateRequest) (*berth.Container, error) {
	now := k.now().Unix()
	c := &berth.Container{ID: berth.ContainerID(berth.NewID(berth.PrefixContainer)), Object: "container",
		CreatedAt: now, Status: berth.ContainerRunning, LastActiveAt: now, Name: req.Name, MemoryLimit: req.MemoryLimit,
		ExpiresAfter:  berth.ExpiresAfter{Anchor: "last_active_at", Minutes: k.opts.IdleMinutes},
		NetworkPolicy: publicPolicy(req.NetworkPolicy),
		Berth:         berth.ContainerBerth{Isolation: k.opts.Driver.Features().Isolation, Starting: true}}
	if c.MemoryLimit == "" {
		c.MemoryLimit = "1g"
	}
	if berth.MemoryLimits[c.MemoryLimit] == 0 {
		return nil, berth.Invalid("memory_limit", "Invalid value: '%s'. Supported values are: '1g', '4g', '16g', and '64g'.", req.MemoryLimit)
	}
	if e := req.ExpiresAfter; e != nil {
		if e.Anchor != "last_active_at" {
			return nil, berth.Invalid("expires_after.anchor", "Invalid value: '%s'. Supported values are: 'last_active_at'.", e.Anchor)
		}
		if e.Minutes < 1 || e.Minutes > k.opts.MaxIdleMinutes {
			return nil, berth.Invalid("expires_after.minutes", "Invalid value: %d. Containers of this server expire after 1 to %d minutes.", e.Minutes, k.opts.MaxIdleMinutes)
		}
		c.ExpiresAfter = *e
	}
	if _, err := k.newNetwork(c.ID, req.NetworkPolicy); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(req.Env, func(kv string) bool {
		return strings.Index(kv, "=") < 1 || strings.Contains(kv, "\x00")
	}); i >= 0 {
		return nil, berth.Invalid("env", "An environment variable has no name, or a NUL in it.")
	}
	return c, k.checkFiles(ctx, p, req.FileIDs)
}

// checkFiles returns an error unless all files are there.
func (k *Keeper) checkFiles(ctx context.Context, p berth.ProjectID, ids []berth.FileID) error {
	for i, id := range ids {
		body, _, err := k.opts.OpenFile(ctx, p, id)
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
func (k *Keeper) Get(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	if s := k.lookup(p, id); s != nil {
		s.touch(k.now())
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
func (k *Keeper) List(ctx context.Context, p berth.ProjectID, name string, page store.Page) ([]*berth.Container, bool, error) {
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
func (k *Keeper) current(rec *store.Container) *berth.Container {
	if s := k.lookup(rec.Project, rec.Body.ID); s != nil && rec.Body.Status == berth.ContainerRunning {
		rec.Body.LastActiveAt = max(rec.Body.LastActiveAt, s.lastActive(k.now()).Unix())
	}
	return rec.Body
}

// Delete ends a container and removes all of it; when it returns nil, nothing is
// left. If it returns an error other than CodeNotFound, the removal will be tried again.
func (k *Keeper) Delete(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	if _, err := k.opts.Store.GetContainer(ctx, p, id); errors.Is(err, store.ErrNotFound) {
		return notFound(id)
	} else if err != nil {
		return err
	}
	if s := k.lookup(p, id); s != nil {
		k.bury(s, reasonDeleted, notFound(id), nil, nil)
		if err := k.inter(s); err != nil {
			return err
		}
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
