package kubernetes

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

func (d *Driver) policyPath() string {
	return "/apis/networking.k8s.io/v1/namespaces/" + d.client.namespace + "/networkpolicies/" + d.names.policy()
}

// denyTraffic writes the network policy that permits the driver's Pods no traffic. Their way out
// is the guest's stream to the server, through the API server and the node.
func (d *Driver) denyTraffic(ctx context.Context) error {
	labels := map[string]string{labelInstance: d.names.instance}
	policy := networkPolicy{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy",
		Metadata: meta{Name: d.names.policy(), Labels: labels},
		Spec:     networkPolicySpec{PodSelector: selector{labels}, PolicyTypes: []string{"Ingress", "Egress"}}}
	return d.client.do(ctx, http.MethodPatch, d.policyPath(), url.Values{"fieldManager": {"berth"}, "force": {"true"}},
		typeApply, policy, nil)
}

// ErrTraffic is returned for a cluster whose network does not enforce network policies.
var ErrTraffic = errors.New("the cluster's network does not enforce network policies")

// probeTime is how long the probe tries: some networks enforce a policy some moments after a Pod
// has started.
const probeTime = "10s"

// checkDenied runs a Pod that tries to reach the API server, which every Pod of a cluster reaches
// unless a policy forbids it. It returns ErrTraffic if the Pod does.
func (d *Driver) checkDenied(ctx context.Context) error {
	image, err := d.images.guestOnly(ctx)
	if err != nil {
		return err
	}
	var random [4]byte
	rand.Read(random[:])
	name := d.names.policy() + "-probe-" + hex.EncodeToString(random[:])
	p := d.pods.bare(name, kindProbe, image, owner{uid: nobodyID, gid: nobodyID})
	p.Spec.ActiveDeadlineSeconds = int64(openTimeout / time.Second)
	yes := true
	c := &p.Spec.Containers[0]
	c.Command = []string{guestPath, "unreachable", probeTime, apiAddress(d.client.server), "kubernetes"}
	c.SecurityContext.ReadOnlyRootFilesystem = &yes
	if err := d.sweepProbes(ctx); err != nil {
		return err
	}
	err = d.make(ctx, p)
	if errors.Is(err, errNoPod) && d.opts.AgentSandbox == nil {
		d.log.Warn("kubernetes: agent-sandbox is installed, but its controller does nothing; the driver makes Pods itself",
			"err", err)
		d.agents.creates, d.agents.why = false, err.Error()
		err = d.make(ctx, p)
	}
	if err != nil {
		return fmt.Errorf("create a Pod: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		if err := d.sweepProbes(ctx); err != nil {
			d.log.Warn("kubernetes: failed to delete a Pod", "pod", name, "err", err)
		}
	}()
	var last *pod
	err = d.client.await(ctx, name, func(p *pod) (bool, error) {
		last = p
		if p == nil {
			return false, errors.New("it was deleted")
		}
		if t := p.container().State.Terminated; t != nil {
			switch t.ExitCode {
			case 0:
				return true, nil
			case probeReached:
				return false, fmt.Errorf("%w: a Pod %s; install one that does, such as Calico or Cilium", ErrTraffic,
					inWords(t.Message, wordsLimit))
			}
		}
		if e, dead := endOf(p, time.Now()); dead {
			return false, errors.New(e.detail)
		}
		return false, nil
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded) && last != nil:
		err = fmt.Errorf("%s: %w", last.pending(), err)
	case errors.Is(err, ErrTraffic):
		return err
	}
	if err != nil {
		return fmt.Errorf("try a Pod: %w", err)
	}
	return nil
}

// probeReached is the exit code of "berth-guest unreachable" if something can be reached.
const probeReached = 3

// sweepProbes deletes the probes that earlier servers left.
func (d *Driver) sweepProbes(ctx context.Context) error {
	grace := int64(0)
	_, err := d.sweep(ctx, d.names.selector(kindProbe), &grace)
	return err
}

// apiAddress returns the address of the API server as host:port.
func apiAddress(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), "443")
}
