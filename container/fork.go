package container

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/berth-run/berth"
)

// A Forked is one of the forks that were asked for, or why it does not run.
type Forked struct {
	Container *berth.Container
	Err       error
}

// Fork creates a container with the current files, limits, expiry, network policy and secrets
// of another one. With memory, its processes continue in both. If req.Name is empty, the fork
// has the source's name.
//
// The content is copied from one sandbox into the other and is not stored in between. Fork
// returns when the fork runs: until then its content exists only in the source, which may
// change afterwards. An interrupted fork is not repeated; it ends.
func (svc *Service) Fork(ctx context.Context, caller berth.Caller, id berth.ContainerID,
	req ForkRequest) (*berth.Container, error) {
	forks, err := svc.forker.Forks(ctx, caller, id, req, 1)
	if err != nil {
		return nil, err
	}
	return forks[0].Container, forks[0].Err
}

// A Forker makes forks of containers. It is safe for concurrent use.
type Forker struct {
	opts      *Options
	work      *workers
	leases    *leases
	deaths    *deaths
	snapshots *Snapshots
	planner   *planner
	creator   *creator
	remove    func(context.Context, berth.ProjectID, berth.ContainerID) error
}

// Forker returns what makes several forks with one content.
func (svc *Service) Forker() *Forker { return svc.forker }

// Forks creates n forks, as Fork does. All of them have the same content: it is read once, and kept encrypted in
// Options.SpoolDir until they run. Their names, if req has one, end in -1 to -n. It returns n results, or an error if
// the source cannot be forked.
func (fo *Forker) Forks(ctx context.Context, caller berth.Caller, id berth.ContainerID, req ForkRequest,
	n int) ([]Forked, error) {
	from, held, release, err := fo.leases.use(ctx, caller.Project, id)
	if err != nil {
		return nil, err
	}
	defer release()
	files, err := fo.snapshots.userFiles(held, from)
	if err != nil {
		return nil, err
	}
	content := contentCopy{ctx: held, from: from, memory: req.Memory, files: files}
	if n > 1 {
		if content.shared, err = fo.snapshots.share(held, &content); err != nil {
			if held.Err() != nil {
				return nil, fo.leases.explain(held, from, context.Cause(held))
			}
			return nil, fo.snapshots.explain(held, from, err)
		}
		defer content.shared.Close()
	}
	forks := make([]Forked, n)
	var all sync.WaitGroup
	for i := range forks {
		f, one := &forks[i], req
		if n > 1 && req.Name != "" {
			one.Name = fmt.Sprintf("%s-%d", req.Name, i+1)
		}
		c := content
		s, pl, err := fo.start(held, caller, &c, one)
		if err != nil {
			f.Err = err
			continue
		}
		all.Go(func() { f.Container, f.Err = fo.await(held, caller, &c, s, pl) })
	}
	all.Wait()
	return forks, nil
}

// ForkAll creates n forks, as Forks does, or none and returns an error.
func (fo *Forker) ForkAll(ctx context.Context, caller berth.Caller, id berth.ContainerID, req ForkRequest,
	n int) ([]*berth.Container, error) {
	forks, err := fo.Forks(ctx, caller, id, req, n)
	if err != nil {
		return nil, err
	}
	made := make([]*berth.Container, 0, n)
	for _, f := range forks {
		if f.Err != nil {
			err = cmp.Or(err, f.Err)
			continue
		}
		made = append(made, f.Container)
	}
	if err == nil {
		return made, nil
	}
	for _, c := range made {
		fo.discard(caller.Project, c.ID)
	}
	return nil, err
}

// start creates a fork, whose sandbox starts in the background.
func (fo *Forker) start(ctx context.Context, caller berth.Caller, c *contentCopy, req ForkRequest) (*instance,
	*plan, error) {
	pl, err := fo.planner.planFork(ctx, caller.Project, c, req)
	if err != nil {
		return nil, nil, err
	}
	s, err := fo.creator.create(ctx, caller, pl)
	return s, pl, err
}

// await returns a fork that runs, or deletes one that does not start.
func (fo *Forker) await(held context.Context, caller berth.Caller, c *contentCopy, s *instance,
	pl *plan) (*berth.Container, error) {
	select {
	case <-s.started:
	case <-held.Done():
		if fo.work.life.Err() == nil && !s.running() { // otherwise the next server continues with what was saved
			// the client does not get its id
			fo.deaths.end(s, reasonDeleted, berth.NotFound("Container", s.id), nil, nil)
		}
		<-s.started
	}
	if s.life.Err() == nil {
		pl.body.Berth.Starting = false
		return pl.body, nil
	}
	err := context.Cause(s.life)
	switch {
	case fo.work.life.Err() != nil:
		return nil, errStopping // the next server ends the fork
	case held.Err() != nil:
		err = fo.leases.explain(held, c.from, context.Cause(held))
	case c.failed != nil:
		err = fo.snapshots.explain(held, c.from, c.failed)
	}
	fo.discard(caller.Project, s.id)
	return nil, err
}

// discard deletes a fork that did not start, because the client does not get its id.
func (fo *Forker) discard(p berth.ProjectID, id berth.ContainerID) {
	ctx, cancel := fo.opts.clock.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if err := fo.remove(ctx, p, id); err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
		fo.opts.Log.Warn("failed to delete a fork that did not start; will retry", "container", id, "err", err)
	}
}

// planFork returns the plan of a fork.
func (pn *planner) planFork(ctx context.Context, p berth.ProjectID, c *contentCopy, req ForkRequest) (*plan, error) {
	from, policy, name := &c.from.body, c.from.networkPolicy(), cmp.Or(req.Name, c.from.body.Name)
	pl, err := pn.planFrom(ctx, p, CreateRequest{Name: name, UniqueName: req.UniqueName, MemoryLimit: from.MemoryLimit,
		ExpiresAfter:  &from.ExpiresAfter,
		NetworkPolicy: &policy, Source: berth.ContainerSource{OnExpiry: from.Berth.OnExpiry,
			KeepAwake: from.Berth.KeepAwake, Volumes: from.Berth.Volumes}}, c)
	if err != nil {
		return nil, err
	}
	pl.body.Berth.ForkedFrom, pl.body.Berth.EndUser = c.from.id, from.Berth.EndUser
	if n := c.from.network.Load(); n != nil {
		// The files may hold the placeholders, and the programs trust the authority.
		pl.network = &network{access: n.present(), secrets: n.secrets}
	}
	return pl, nil
}
