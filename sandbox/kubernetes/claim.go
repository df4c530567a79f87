package kubernetes

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/berth-run/berth/sandbox"
)

// Servers that share an instance share its Pods, too. A label of the Pod, or of its Sandbox, names the server
// that has it, and an annotation the epoch of the last claim. Claims and deletions are conditional on the
// version that was read, and the guest refuses connections with an older epoch than the last (package
// guest/server), so two servers never command one sandbox.

var _ sandbox.Claimer = (*Driver)(nil)

// epochOf returns the epoch of the last claim of a Pod.
func epochOf(m *meta) int64 {
	n, err := strconv.ParseInt(m.Annotations[annotationEpoch], 10, 64)
	if err != nil {
		return math.MaxInt64 // something else has changed it: no server may claim it
	}
	return n
}

// maxConflicts bounds the attempts at a conditional write: the cluster changes a Pod's status now and
// then.
const maxConflicts = 20

// Claim implements sandbox.Claimer.
func (d *Driver) Claim(ctx context.Context, id string, epoch int64) error {
	name, err := d.names.pod(id)
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
		b, err := d.find(ctx, name)
		if isMissing(err) {
			return fmt.Errorf("%w: %w", sandbox.ErrNotFound, err)
		}
		if err != nil {
			return err
		}
		m := b.meta()
		switch last := epochOf(m); {
		case d.names.has(m) && last == epoch:
			return nil
		case last >= epoch:
			return fmt.Errorf("%w: %s, epoch %d", sandbox.ErrClaimed, m.Labels[labelServer], last)
		}
		labels := map[string]string{labelServer: d.opts.Server}
		patch := map[string]any{"metadata": meta{UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: labels,
			Annotations: map[string]string{annotationEpoch: strconv.FormatInt(epoch, 10)}}}
		path := d.client.podPath(name)
		if b.sandbox != nil {
			path = d.client.sandboxPath(name)
			// which the controller copies to the Pod
			patch["spec"] = map[string]any{"podTemplate": map[string]any{"metadata": meta{Labels: labels}}}
		}
		err = d.client.do(ctx, http.MethodPatch, path, nil, typeMerge, patch, nil)
		if err == nil || !isCode(err, http.StatusConflict) || n == maxConflicts {
			return err
		}
	}
}

// Claimed implements sandbox.Claimer.
func (d *Driver) Claimed(ctx context.Context) (map[string]string, error) {
	all, err := d.listAll(ctx, d.names.selectorOfAll(kindSandbox))
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
	if d.own == "" || d.own == d.names.instance {
		return nil
	}
	n, err := d.sweep(ctx, labelInstance+"="+d.own, nil)
	if n > 0 {
		d.log.Warn("kubernetes: removed the sandboxes from before this server joined a cluster", "sandboxes", n)
	}
	return err
}
