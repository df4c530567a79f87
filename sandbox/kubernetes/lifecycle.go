package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/berth-run/berth/sandbox"
)

const (
	// startTimeout bounds Start if ctx has no earlier deadline. A node may have to pull the image.
	startTimeout = 10 * time.Minute

	// endTimeout is how long Destroy waits for a node to confirm the end of a Pod. It is less than
	// what callers have, so that the object of a Pod on a lost node is removed.
	endTimeout = 30 * time.Second
)

// Create creates the Pod, or the Sandbox that it is made of. It is not scheduled before Start. For the
// first sandbox of a template it pushes the template's image.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) error {
	name, err := d.names.pod(spec.ID)
	if err != nil {
		return fmt.Errorf("kubernetes: create: %w", err)
	}
	if err := d.create(ctx, name, spec); err != nil {
		return fmt.Errorf("kubernetes: create %s: %w", spec.ID, err)
	}
	return nil
}

func (d *Driver) create(ctx context.Context, name string, spec sandbox.Spec) error {
	if len(spec.Mounts) > 0 {
		return fmt.Errorf("mounts: %w", errors.ErrUnsupported)
	}
	who, home, err := userOf(spec.Template)
	if err != nil {
		return err
	}
	who.root = d.opts.Root
	if err := checkUser(who, spec.Template.Ref); err != nil {
		return err
	}
	image, err := d.images.template(ctx, spec.Template, who)
	if err != nil {
		return err
	}
	if err := d.make(ctx, d.pods.sandbox(name, image, home, who, spec)); err != nil {
		return err
	}
	d.deleted.forget(name)
	return nil
}

// Start lets the cluster schedule the Pod, and returns when its guest runs.
func (d *Driver) Start(ctx context.Context, id string) error {
	name, err := d.names.pod(id)
	if err != nil {
		return fmt.Errorf("kubernetes: start: %w", err)
	}
	if err := d.start(ctx, name); err != nil {
		return d.wrap("start", id, err)
	}
	return nil
}

func (d *Driver) start(ctx context.Context, name string) error {
	b, err := d.getOwn(ctx, name)
	if err != nil {
		return err
	}
	state, _, err := d.state(b)
	if err != nil {
		return err
	}
	if state != sandbox.StateCreated {
		return fmt.Errorf("it was started before and is %s", state)
	}
	p := b.pod
	if b.sandbox != nil {
		if p, err = d.agents.take(ctx, b); err != nil {
			return err
		}
	}
	patch := map[string]any{"metadata": meta{UID: p.Metadata.UID}, "spec": map[string]any{"schedulingGates": nil}}
	if err := d.client.do(ctx, http.MethodPatch, d.client.podPath(name), nil, typeMerge, patch, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	last := p
	err = d.client.await(ctx, name, func(p *pod) (bool, error) {
		if p == nil || p.Metadata.UID != last.Metadata.UID {
			return false, errors.New("its Pod was deleted")
		}
		last = p
		if p.container().State.Running != nil {
			return true, nil
		}
		if e, dead := endOf(p, time.Now()); dead {
			if w := p.container().State.Waiting; w != nil {
				d.images.forget()
			}
			return false, errors.New(e.detail)
		}
		return false, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s: %w", last.pending(), err)
	}
	return err
}

// Dial starts a relay in the sandbox, which connects to the guest's socket and carries the
// connection over its standard streams. The relay ends with the connection.
func (d *Driver) Dial(ctx context.Context, id string) (net.Conn, error) {
	name, err := d.names.pod(id)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: dial: %w", err)
	}
	conn, err := d.dial(ctx, name)
	if err != nil {
		return nil, d.wrap("dial", id, err)
	}
	return conn, nil
}

func (d *Driver) dial(ctx context.Context, name string) (net.Conn, error) {
	command := []string{guestPath, "dial", guestSocket}
	if d.opts.Server != "" {
		b, err := d.getOwn(ctx, name)
		if err != nil {
			return nil, err
		}
		command = append(command, strconv.FormatInt(epochOf(b.meta()), 10))
	}
	s, err := d.client.exec(ctx, name, command...)
	if err != nil {
		if b, getErr := d.find(ctx, name); getErr == nil {
			if state, e, _ := d.state(b); state == sandbox.StateDead {
				err = fmt.Errorf("%w; %s", err, e.detail)
			}
		} else if isMissing(getErr) {
			err = getErr
		}
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	err = s.greeted()
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// wrap adds the operation and the sandbox to err.
func (d *Driver) wrap(what, id string, err error) error {
	if isMissing(err) || errors.Is(err, sandbox.ErrClaimed) {
		err = errors.Join(sandbox.ErrNotFound, err)
	}
	return fmt.Errorf("kubernetes: %s %s: %w", what, id, err)
}

// Stats reports the state and resource use of the sandbox. A program in the sandbox reads the
// figures, which a hostile one may falsify.
func (d *Driver) Stats(ctx context.Context, id string) (sandbox.Stats, error) {
	name, err := d.names.pod(id)
	if err != nil {
		return sandbox.Stats{}, fmt.Errorf("kubernetes: stats: %w", err)
	}
	b, err := d.getOwn(ctx, name)
	if isMissing(err) {
		if e, ok := d.deleted.end(name); ok {
			return sandbox.Stats{State: sandbox.StateDead, Reason: e.reason, Detail: e.detail}, nil
		}
	}
	if err != nil {
		return sandbox.Stats{}, d.wrap("stats", id, err)
	}
	state, e, err := d.state(b)
	if err != nil {
		return sandbox.Stats{}, d.wrap("stats", id, err)
	}
	stats := sandbox.Stats{State: state, Reason: e.reason, Detail: e.detail}
	if p := b.current(); p != nil && p.container().State.Running != nil && state == sandbox.StateRunning {
		d.usages.add(ctx, d.client, name, &stats)
	}
	return stats, nil
}

// Pause returns errors.ErrUnsupported: Kubernetes cannot pause Pods.
func (d *Driver) Pause(_ context.Context, id string) error {
	return fmt.Errorf("kubernetes: pause %s: %w", id, errors.ErrUnsupported)
}

// Resume returns errors.ErrUnsupported.
func (d *Driver) Resume(_ context.Context, id string) error {
	return fmt.Errorf("kubernetes: resume %s: %w", id, errors.ErrUnsupported)
}

// Destroy deletes the Pod, and returns when its node has ended its processes and removed its files.
func (d *Driver) Destroy(ctx context.Context, id string) error {
	name, err := d.names.pod(id)
	if err == nil {
		err = d.remove(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("kubernetes: destroy %s: %w", id, err)
	}
	return nil
}

// remove deletes a Pod and its Sandbox, if they exist and no other server has claimed them.
func (d *Driver) remove(ctx context.Context, name string) error {
	defer d.usages.forget(name)
	b, err := d.deleteOwn(ctx, name)
	if err != nil && !isMissing(err) && !errors.Is(err, sandbox.ErrClaimed) {
		return err
	}
	if err == nil && b.pod != nil {
		if err := d.removePod(ctx, b.pod); err != nil {
			return err
		}
	}
	if err == nil && b.sandbox != nil {
		if err := d.agents.finish(ctx, b.sandbox); err != nil {
			return err
		}
	}
	d.deleted.forget(name)
	return nil
}

// removePod waits for the end of a Pod that was deleted. If its node is lost, or does not confirm the end in
// time, it removes the object without.
func (d *Driver) removePod(ctx context.Context, p *pod) error {
	name := p.Metadata.Name
	short, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	err := d.client.await(short, name, func(now *pod) (bool, error) {
		if now == nil || now.Metadata.UID != p.Metadata.UID {
			return true, nil
		}
		c := now.condition("DisruptionTarget")
		return c != nil && c.Reason == "DeletionByTaintManager" && now.container().State.Terminated == nil, nil
	})
	if err != nil && short.Err() == nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if now, getErr := d.client.getPod(ctx, name); isMissing(getErr) || getErr == nil &&
		now.Metadata.UID != p.Metadata.UID {
		return nil
	}
	d.log.Warn("kubernetes: a node does not confirm the end of a Pod; removing it from the cluster", "pod", name,
		"node", p.Spec.NodeName)
	grace := int64(0)
	if err := d.client.deletePod(ctx, name, p.Metadata.UID, &grace); err != nil && !isMissing(err) &&
		!isCode(err, http.StatusConflict) {
		return err
	}
	return nil
}
