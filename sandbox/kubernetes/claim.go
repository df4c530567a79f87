package kubernetes

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/berth-run/berth/sandbox"
)

// Servers that share an instance share its Pods, too. A Pod's label names the server that has it, and an
// annotation the epoch of the last claim. Claims and deletions are conditional on the version of the
// Pod that was read, and the guest refuses connections with an older epoch than the last (package
// guest/server), so two servers never command one sandbox.

var _ sandbox.Claimer = (*Driver)(nil)

// has reports whether this server has a Pod.
func (d *Driver) has(m *meta) bool {
	return d.opts.Server == "" || m.Labels[labelServer] == d.opts.Server
}

// epochOf returns the epoch of the last claim of a Pod.
func epochOf(m *meta) int64 {
	n, err := strconv.ParseInt(m.Annotations[annotationEpoch], 10, 64)
	if err != nil {
		return math.MaxInt64 // something else has changed it: no server may claim it
	}
	return n
}

// getOwn returns a Pod. It returns sandbox.ErrClaimed if another server has it.
func (d *Driver) getOwn(ctx context.Context, name string) (*pod, error) {
	p, err := d.client.getPod(ctx, name)
	if err != nil {
		return nil, err
	}
	if !d.has(&p.Metadata) {
		return nil, fmt.Errorf("%w: %s", sandbox.ErrClaimed, p.Metadata.Labels[labelServer])
	}
	return p, nil
}

// maxConflicts bounds the attempts at a conditional write: the cluster changes a Pod's status now and
// then.
const maxConflicts = 20

// deleteOwn deletes a Pod if this server has it, and returns it.
func (d *Driver) deleteOwn(ctx context.Context, name string) (*pod, error) {
	for n := 1; ; n++ {
		p, err := d.getOwn(ctx, name)
		if err != nil {
			return nil, err
		}
		d.deleted.expect(p.Metadata.UID)
		at := meta{UID: p.Metadata.UID}
		if d.opts.Server != "" {
			at.ResourceVersion = p.Metadata.ResourceVersion
		}
		err = d.client.deletePodAt(ctx, name, at, nil)
		if err == nil || !isCode(err, http.StatusConflict) || n == maxConflicts {
			return p, err
		}
	}
}

// Claim implements sandbox.Claimer.
func (d *Driver) Claim(ctx context.Context, id string, epoch int64) error {
	name, err := d.podName(id)
	if err != nil {
		return fmt.Errorf("kubernetes: claim: %w", err)
	}
	if err := d.claim(ctx, name, epoch); err != nil {
		return fmt.Errorf("kubernetes: claim %s: %w", id, err)
	}
	return nil
}

func (d *Driver) claim(ctx context.Context, name string, epoch int64) error {
	for n := 1; ; n++ {
		p, err := d.client.getPod(ctx, name)
		if isMissing(err) {
			return fmt.Errorf("%w: %w", sandbox.ErrNotFound, err)
		}
		if err != nil {
			return err
		}
		switch last := epochOf(&p.Metadata); {
		case d.has(&p.Metadata) && last == epoch:
			return nil
		case last >= epoch:
			return fmt.Errorf("%w: %s, epoch %d", sandbox.ErrClaimed, p.Metadata.Labels[labelServer], last)
		}
		patch := map[string]any{"metadata": meta{UID: p.Metadata.UID, ResourceVersion: p.Metadata.ResourceVersion,
			Labels: map[string]string{labelServer: d.opts.Server}, Annotations: map[string]string{annotationEpoch: strconv.FormatInt(epoch, 10)}}}
		err = d.client.do(ctx, http.MethodPatch, d.client.podPath(name), nil, typeMerge, patch, nil)
		if err == nil || !isCode(err, http.StatusConflict) || n == maxConflicts {
			return err
		}
	}
}

// Claimed implements sandbox.Claimer.
func (d *Driver) Claimed(ctx context.Context) (map[string]string, error) {
	all, _, err := d.client.listPods(ctx, d.selectorOfAll(kindSandbox))
	if err != nil {
		return nil, fmt.Errorf("kubernetes: list: %w", err)
	}
	servers := map[string]string{}
	for _, m := range all {
		if id := m.Annotations[annotationSandbox]; sandbox.CheckID(id) == nil {
			servers[id] = m.Labels[labelServer]
		}
	}
	return servers, nil
}

// sweepOwn deletes the Pods of the state directory from before it was a cluster's. Their policy
// stays.
func (d *Driver) sweepOwn(ctx context.Context) error {
	if d.own == "" || d.own == d.instance {
		return nil
	}
	former := labelInstance + "=" + d.own
	all, _, err := d.client.listPods(ctx, former)
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := d.client.deletePod(ctx, m.Name, m.UID, nil); err != nil && !isMissing(err) {
			return err
		}
	}
	if len(all) == 0 {
		return nil
	}
	d.log.Warn("kubernetes: removed the sandboxes from before this server joined a cluster", "sandboxes", len(all))
	return nil
}
