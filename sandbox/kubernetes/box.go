package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/berth-run/berth/sandbox"
)

// A box is a sandbox as the cluster has it: a bare Pod, or a Sandbox of agent-sandbox and its Pod.
type box struct {
	sandbox *agentSandbox // nil for a bare Pod, or if the Sandbox is gone before its Pod
	pod     *pod          // nil if there is none; with a Sandbox it may be a replacement
}

// meta returns the metadata that names the server and the epoch.
func (b *box) meta() *meta {
	if b.sandbox != nil {
		return &b.sandbox.Metadata
	}
	return &b.pod.Metadata
}

// current returns the Pod, or nil if it is gone. A Pod that replaces the one that was started is not
// the sandbox.
func (b *box) current() *pod {
	if b.sandbox != nil && b.sandbox.started() != "" && b.pod != nil && b.pod.Metadata.UID != b.sandbox.started() {
		return nil
	}
	return b.pod
}

// find returns a sandbox of any server.
func (d *Driver) find(ctx context.Context, name string) (*box, error) {
	p, missing := d.client.getPod(ctx, name)
	if missing != nil && !isMissing(missing) {
		return nil, missing
	}
	managed := missing == nil && sandboxUID(&p.Metadata) != ""
	if !d.agents.reads && managed {
		return nil, fmt.Errorf("its Pod is that of a Sandbox: %s", d.agents.why)
	}
	if d.agents.reads && (missing != nil || managed) {
		s, err := d.client.getSandbox(ctx, name)
		if err == nil {
			b := &box{sandbox: s}
			if s.owns(p) {
				b.pod = p
			}
			return b, nil
		}
		if !isMissing(err) {
			return nil, err
		}
	}
	if missing != nil {
		return nil, missing
	}
	return &box{pod: p}, nil
}

// getOwn returns a sandbox. It returns sandbox.ErrClaimed if another server has it.
func (d *Driver) getOwn(ctx context.Context, name string) (*box, error) {
	b, err := d.find(ctx, name)
	if err != nil {
		return nil, err
	}
	if !d.names.has(b.meta()) {
		return nil, fmt.Errorf("%w: %s", sandbox.ErrClaimed, b.meta().Labels[labelServer])
	}
	return b, nil
}

// state returns the state of a sandbox, and its end if it is dead.
func (d *Driver) state(b *box) (sandbox.State, end, error) {
	p := b.current()
	switch {
	case p != nil && b.sandbox == nil && replaced(p):
		return sandbox.StateDead, end{sandbox.ReasonKilled, "its Sandbox was deleted"}, nil
	case p != nil:
		return stateOf(p, time.Now())
	case b.sandbox.started() == "":
		return sandbox.StateCreated, end{}, nil
	}
	if e, ok := d.deleted.end(b.sandbox.Metadata.Name); ok {
		return sandbox.StateDead, e, nil
	}
	return sandbox.StateDead, end{sandbox.ReasonHost, "its Pod was removed while no server watched it"}, nil
}

// deleteOwn deletes a sandbox if this server has it, and returns it. A Sandbox stays until its Pod is
// gone.
func (d *Driver) deleteOwn(ctx context.Context, name string) (*box, error) {
	for n := 1; ; n++ {
		b, err := d.getOwn(ctx, name)
		if err != nil {
			return nil, err
		}
		if b.pod != nil {
			d.deleted.expect(b.pod.Metadata.UID)
		}
		at := meta{UID: b.meta().UID}
		if d.opts.Server != "" {
			at.ResourceVersion = b.meta().ResourceVersion
		}
		if b.sandbox == nil {
			err = d.client.deletePodAt(ctx, name, at, nil)
		} else if err = d.client.deleteAt(ctx, d.client.sandboxPath(name), at, nil, "Foreground"); err == nil &&
			b.pod != nil {
			// The cluster would do it, too, and later.
			if err = d.client.deletePod(ctx, name, b.pod.Metadata.UID, nil); isMissing(err) ||
				isCode(err, http.StatusConflict) {
				err = nil
			}
		}
		if err == nil || !isCode(err, http.StatusConflict) || n == maxConflicts {
			return b, err
		}
	}
}

// sweep deletes the Pods and Sandboxes with a label without waiting for their end, and returns their
// number.
func (d *Driver) sweep(ctx context.Context, label string, grace *int64) (int, error) {
	var sandboxes []meta
	if d.agents.reads {
		var err error
		if sandboxes, err = d.client.listSandboxes(ctx, label); err != nil {
			return 0, err
		}
	}
	n := len(sandboxes)
	for _, m := range sandboxes {
		if err := d.client.deleteAt(ctx, d.client.sandboxPath(m.Name), meta{UID: m.UID}, nil,
			"Foreground"); err != nil && !isMissing(err) {
			return n, err
		}
	}
	pods, _, err := d.client.listPods(ctx, label)
	if err != nil {
		return n, err
	}
	for _, m := range pods {
		if sandboxUID(&m) == "" {
			n++
		}
		if err := d.client.deletePod(ctx, m.Name, m.UID, grace); err != nil && !isMissing(err) {
			return n, err
		}
	}
	return n, nil
}

// listAll returns the metadata of sandboxes with a label, of bare Pods and Sandboxes.
func (d *Driver) listAll(ctx context.Context, label string) ([]meta, error) {
	pods, _, err := d.client.listPods(ctx, label)
	if err != nil {
		return nil, err
	}
	var all []meta
	for _, m := range pods {
		if sandboxUID(&m) == "" {
			all = append(all, m)
		}
	}
	if d.agents.reads {
		sandboxes, err := d.client.listSandboxes(ctx, label)
		return append(all, sandboxes...), err
	}
	return all, nil
}
