package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/layer"
)

// Fork creates a container with the current files, limits, expiry, network policy and secrets
// of another one. With memory, its processes continue in both. If req.Name is empty, the fork
// has the source's name.
//
// The content is copied from one sandbox into the other and is not stored in between. Fork
// returns when the fork runs: until then its content exists only in the source, which may
// change afterwards. An interrupted fork is not repeated; it ends.
func (svc *Service) Fork(ctx context.Context, caller berth.Caller, id berth.ContainerID,
	req ForkRequest) (*berth.Container, error) {
	from, held, release, err := svc.leases.use(ctx, caller.Project, id)
	if err != nil {
		return nil, err
	}
	defer release()
	c := &copying{ctx: held, from: from, memory: req.Memory}
	if c.files, err = svc.snapshots.userFiles(held, from); err != nil {
		return nil, err
	}
	pl, err := svc.planner.planFork(held, caller.Project, c, req)
	if err != nil {
		return nil, err
	}
	s, err := svc.creator.create(held, caller, pl)
	if err != nil {
		return nil, err
	}
	select {
	case <-s.started:
	case <-held.Done():
		svc.deaths.end(s, reasonDeleted, berth.NotFound("Container", s.id), nil, nil) // the client does not get its id
		<-s.started
	}
	if s.life.Err() == nil {
		pl.body.Berth.Starting = false
		return pl.body, nil
	}
	err = context.Cause(s.life)
	switch {
	case svc.work.life.Err() != nil:
		return nil, errStopping // the next server ends the fork
	case held.Err() != nil:
		err = svc.leases.explain(held, from, context.Cause(held))
	case c.failed != nil:
		err = svc.snapshots.explain(held, from, c.failed)
	}
	svc.discardFork(caller.Project, s.id)
	return nil, err
}

// discardFork deletes a fork that did not start, because the client does not get its id.
func (svc *Service) discardFork(p berth.ProjectID, id berth.ContainerID) {
	ctx, cancel := svc.opts.clock.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if err := svc.Delete(ctx, p, id); err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
		svc.opts.Log.Warn("failed to delete a fork that did not start; retrying later", "container", id, "err", err)
	}
}

// planFork returns the plan of a fork.
func (pn *planner) planFork(ctx context.Context, p berth.ProjectID, c *copying, req ForkRequest) (*plan, error) {
	from, policy, name := &c.from.body, c.from.networkPolicy(), cmp.Or(req.Name, c.from.body.Name)
	pl, err := pn.planFrom(ctx, p, CreateRequest{Name: name, UniqueName: req.UniqueName, MemoryLimit: from.MemoryLimit,
		ExpiresAfter:  &from.ExpiresAfter,
		NetworkPolicy: &policy, Source: berth.ContainerSource{OnExpiry: from.Berth.OnExpiry,
			KeepAwake: from.Berth.KeepAwake, Volumes: from.Berth.Volumes}}, c)
	if err != nil {
		return nil, err
	}
	pl.body.Berth.ForkedFrom = c.from.id
	if n := c.from.network.Load(); n != nil {
		// The files may hold the placeholders, and the programs trust the authority.
		pl.network = &network{access: n.present(), secrets: n.secrets}
	}
	return pl, nil
}

// A copying copies the content of a container into the sandbox of its fork.
type copying struct {
	ctx    context.Context // of the request; ends with the source
	from   *instance       // held by the caller of Fork
	memory bool            // with the running processes
	files  []*berth.ContainerFile
	failed error // the error of reading the source, if any; valid when the fork has started or ended
}

// errCopyEnded is the error of writing to a fork that reads no more.
var errCopyEnded = errors.New("the fork reads no more")

// open starts to read the source. write writes its content. The reader's Close returns when
// write has returned.
func (c *copying) open(write func(io.Writer) error) io.ReadCloser {
	r, w := io.Pipe()
	o := &copyReader{PipeReader: r, done: make(chan struct{})}
	c.failed = nil
	go func() {
		defer close(o.done)
		err := write(w)
		if err != nil && !errors.Is(err, errCopyEnded) {
			c.failed = err
		}
		w.CloseWithError(err)
	}()
	return o
}

type copyReader struct {
	*io.PipeReader
	done chan struct{}
}

func (o *copyReader) Close() error {
	_ = o.CloseWithError(errCopyEnded) // never fails
	<-o.done
	return nil
}

// bind returns ctx, which also ends with the request of the copying.
func (c *copying) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// copyFiles copies the changes of the source's file system into a new sandbox. Commands of the
// source are frozen meanwhile.
func (sn *Snapshots) copyFiles(ctx context.Context, s *instance, c *copying, base string) error {
	ctx, done := c.bind(ctx)
	defer done()
	if err := sn.slots.acquire(ctx); err != nil {
		return err
	}
	defer sn.slots.release()
	content := c.open(func(w io.Writer) error {
		in, err := c.from.client.Archive(ctx)
		if err != nil {
			return err
		}
		defer in.Close()
		made, err := layer.Write(w, in, base, layer.Limits{Bytes: sn.opts.Limits.WithDefaults().Disk})
		if len(made.Dropped) > 0 {
			sn.opts.Log.Warn("fork omits files with invalid names", "container", c.from.id, "names", made.Dropped)
		}
		return err
	})
	err := sn.apply(ctx, s, content)
	_ = content.Close() // waits for the source
	return err
}

// copyMemory returns the memory of the source, which is written while it is read.
func (sn *Snapshots) copyMemory(ctx context.Context, c *copying) io.ReadCloser {
	ctx, done := c.bind(ctx)
	return c.open(func(w io.Writer) error {
		defer done()
		if err := sn.slots.acquire(ctx); err != nil {
			return err
		}
		defer sn.slots.release()
		began := sn.opts.clock.Now()
		if err := sn.checkpoint(ctx, c.from, w); err != nil {
			return fmt.Errorf("copy memory: %w", err)
		}
		sn.opts.Log.Debug("memory copied", "container", c.from.id, "took", sn.opts.clock.Since(began))
		return nil
	})
}
