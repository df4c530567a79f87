package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Where the cluster has agent-sandbox, the driver creates a Sandbox for each container, and the
// controller of agent-sandbox makes its Pod, which has the same name (docs/decisions/0031-agent-sandbox.md).
// The labels and annotations of the Sandbox are what those of a bare Pod are otherwise. A Pod that the
// controller makes in place of one that is gone has the gate of the template, so it never runs.

const (
	agentGroup   = "agents.x-k8s.io"
	agentVersion = agentGroup + "/v1beta1"
	agentKind    = "Sandbox"
	agentPlural  = "sandboxes"
)

// agentVerbs are the rights that the driver needs to Sandboxes.
var agentVerbs = []string{"create", "get", "list", "patch", "delete"}

const (
	// controllerTimeout is how long the controller may take to make a Pod.
	controllerTimeout = 20 * time.Second
	// controllerCheck is how often the driver asks why a Pod has not been made.
	controllerCheck = time.Second
	// finishTimeout is how long the cluster may take to remove a Sandbox whose Pod is gone.
	finishTimeout = 20 * time.Second
)

// errNoPod is returned if the controller of agent-sandbox does nothing.
var errNoPod = errors.New("the controller of agent-sandbox has not made a Pod")

// An agentSandbox is a Sandbox of agent-sandbox, with the fields that the driver reads or writes.
type agentSandbox struct {
	APIVersion string      `json:"apiVersion,omitempty"`
	Kind       string      `json:"kind,omitempty"`
	Metadata   meta        `json:"metadata"`
	Spec       agentSpec   `json:"spec"`
	Status     agentStatus `json:"status,omitzero"`
}

type agentSpec struct {
	PodTemplate podTemplate `json:"podTemplate"`
	Service     *bool       `json:"service,omitempty"`
}

type podTemplate struct {
	Metadata meta    `json:"metadata"`
	Spec     podSpec `json:"spec"`
}

type agentStatus struct {
	Conditions []condition `json:"conditions,omitempty"`
}

// started returns the uid of the Pod that Start started, or "".
func (s *agentSandbox) started() string { return s.Metadata.Annotations[annotationPod] }

// owns reports whether the controller made a Pod for s.
func (s *agentSandbox) owns(p *pod) bool {
	return p != nil && sandboxUID(&p.Metadata) == s.Metadata.UID
}

// failure returns why the controller cannot make the Pod, or "".
func (s *agentSandbox) failure() string {
	for _, c := range s.Status.Conditions {
		if c.Type == "Ready" && c.Status == "False" && c.Reason == "ReconcilerError" {
			return inWords(c.Message, wordsLimit)
		}
	}
	return ""
}

// sandboxUID returns the uid of the Sandbox that a Pod was made for. It is empty for a bare Pod.
func sandboxUID(m *meta) string {
	for _, o := range m.Owners {
		if group, _, _ := strings.Cut(o.APIVersion, "/"); o.Controller && o.Kind == agentKind && group == agentGroup {
			return o.UID
		}
	}
	return ""
}

// replaced reports whether a Pod of a Sandbox never ran: nothing is lost with it.
func replaced(p *pod) bool { return sandboxUID(&p.Metadata) != "" && len(p.Spec.SchedulingGates) > 0 }

// newSandbox returns the Sandbox whose Pod is p. What a takeover changes later is not an annotation of
// the template, because the controller restores those in the Pod.
func newSandbox(p *pod) *agentSandbox {
	no := false
	return &agentSandbox{APIVersion: agentVersion, Kind: agentKind, Metadata: p.Metadata,
		Spec: agentSpec{Service: &no, PodTemplate: podTemplate{Metadata: meta{Labels: p.Metadata.Labels},
			Spec: p.Spec}}}
}

func (c *client) sandboxesPath() string {
	return "/apis/" + agentVersion + "/namespaces/" + c.namespace + "/" + agentPlural
}

func (c *client) sandboxPath(name string) string { return c.sandboxesPath() + "/" + name }

func (c *client) getSandbox(ctx context.Context, name string) (*agentSandbox, error) {
	s := &agentSandbox{}
	if err := c.do(ctx, http.MethodGet, c.sandboxPath(name), nil, "", nil, s); err != nil {
		return nil, err
	}
	return s, nil
}

func (c *client) listSandboxes(ctx context.Context, label string) ([]meta, error) {
	all, _, err := c.list(ctx, c.sandboxesPath(), url.Values{"labelSelector": {label}})
	return all, err
}

// agents is the driver's use of agent-sandbox.
type agents struct {
	client  *client
	reads   bool   // Sandboxes can be found and removed
	creates bool   // new containers are Sandboxes
	why     string // if not: the reason
}

// findAgentSandbox decides whether containers are Sandboxes.
func (d *Driver) findAgentSandbox(ctx context.Context) error {
	lacks, err := d.agents.lacks(ctx)
	if err != nil {
		return err
	}
	wanted := d.opts.AgentSandbox
	d.agents.reads, d.agents.why = lacks == "", lacks
	d.agents.creates = d.agents.reads && (wanted == nil || *wanted)
	switch {
	case wanted != nil && *wanted && lacks != "":
		return fmt.Errorf("kubernetes.agent_sandbox is true, but %s", lacks)
	case wanted != nil && !*wanted:
		d.agents.why = "kubernetes.agent_sandbox is false"
	}
	if d.agents.reads {
		return nil
	}
	pods, _, err := d.client.listPods(ctx, labelInstance+"="+d.names.instance)
	if err != nil {
		return err
	}
	for _, m := range pods {
		if sandboxUID(&m) != "" {
			d.log.Warn("kubernetes: Sandboxes of earlier containers cannot be reached", "pod", m.Name, "why", lacks)
			break
		}
	}
	return nil
}

// lacks returns what the driver lacks to use agent-sandbox, in words, or "".
func (a *agents) lacks(ctx context.Context) (string, error) {
	var served struct {
		Resources []struct{ Name string }
	}
	err := a.client.do(ctx, http.MethodGet, "/apis/"+agentVersion, nil, "", nil, &served)
	if isCode(err, http.StatusNotFound) || isCode(err, http.StatusForbidden) {
		return "the cluster does not serve " + agentVersion, nil
	}
	if err != nil {
		return "", err
	}
	for _, r := range served.Resources {
		if r.Name == agentPlural {
			return a.lacksRights(ctx)
		}
	}
	return "the cluster does not serve " + agentPlural + "." + agentVersion, nil
}

// lacksRights returns the rights to Sandboxes that the identity lacks, in words, or "".
func (a *agents) lacksRights(ctx context.Context) (string, error) {
	var lacks []string
	for _, verb := range agentVerbs {
		type attributes struct {
			Namespace string `json:"namespace"`
			Verb      string `json:"verb"`
			Group     string `json:"group"`
			Resource  string `json:"resource"`
		}
		type spec struct {
			Attributes attributes `json:"resourceAttributes"`
		}
		review := struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Spec       spec   `json:"spec"`
		}{"authorization.k8s.io/v1", "SelfSubjectAccessReview",
			spec{attributes{a.client.namespace, verb, agentGroup, agentPlural}}}
		var verdict struct{ Status struct{ Allowed bool } }
		if err := a.client.do(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil,
			typeJSON, review, &verdict); err != nil {
			return "", fmt.Errorf("ask for the rights to Sandboxes: %w", err)
		}
		if !verdict.Status.Allowed {
			lacks = append(lacks, verb)
		}
	}
	if len(lacks) == 0 {
		return "", nil
	}
	return fmt.Sprintf("the identity may not %s %s.%s in namespace %s", strings.Join(lacks, ", "), agentPlural,
		agentGroup, a.client.namespace), nil
}

// make creates a Pod; or a Sandbox for it, and returns when the controller has made the Pod. After an
// error there is neither.
func (d *Driver) make(ctx context.Context, p *pod) error {
	path, query, in := d.client.podsPath(), url.Values(nil), any(p)
	s := newSandbox(p)
	if d.agents.creates {
		// Strict: a field that this version of agent-sandbox does not have would be dropped, such as the gate.
		path, query, in = d.client.sandboxesPath(), url.Values{"fieldValidation": {"Strict"}}, s
	}
	err := d.client.do(ctx, http.MethodPost, path, query, typeJSON, in, in)
	var refused *apiError
	switch {
	case isCode(err, http.StatusConflict):
		return errors.Join(fs.ErrExist, err)
	case errors.As(err, &refused):
		return err
	}
	if err == nil && d.agents.creates {
		_, err = d.agents.await(ctx, s)
	}
	if err != nil { // the object may exist
		err = errors.Join(err, d.remove(context.WithoutCancel(ctx), p.Metadata.Name))
	}
	return err
}

// await returns the Pod of a Sandbox that was not started, when its controller has made it.
func (a *agents) await(ctx context.Context, s *agentSandbox) (*pod, error) {
	failure := ""
	for end := time.Now().Add(controllerTimeout); ; {
		p, err := a.watch(ctx, s)
		if p != nil || err != nil {
			return p, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		now, err := a.client.getSandbox(ctx, s.Metadata.Name)
		if err != nil {
			return nil, err
		}
		// The controller tries again after an error, so one that passes is there only once.
		last := failure
		if failure = now.failure(); failure != "" && last != "" {
			return nil, fmt.Errorf("agent-sandbox: %s", failure)
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("%w in %s", errNoPod, controllerTimeout)
		}
	}
}

// watch returns the Pod of a Sandbox, or nil if there is none within controllerCheck.
func (a *agents) watch(ctx context.Context, s *agentSandbox) (made *pod, err error) {
	field := url.Values{"fieldSelector": {"metadata.name=" + s.Metadata.Name}}
	all, version, err := a.client.list(ctx, a.client.podsPath(), field)
	if err != nil {
		return nil, err
	}
	if len(all) > 0 {
		p, err := a.client.getPod(ctx, s.Metadata.Name)
		if err == nil && s.owns(p) {
			return p, nil
		} else if err != nil && !isMissing(err) {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, controllerCheck)
	defer cancel()
	err = a.client.watchPods(ctx, field, version, func(p *pod, deleted bool) bool {
		if !deleted && s.owns(p) {
			made = p
		}
		return made != nil
	})
	if err != nil && ctx.Err() == nil { // it ended early
		select {
		case <-ctx.Done():
		case <-time.After(minPause):
		}
	}
	return made, nil
}

// take returns the Pod of a Sandbox for Start. From then on it is the only one that can be started.
func (a *agents) take(ctx context.Context, b *box) (p *pod, err error) {
	if p = b.pod; p == nil {
		if p, err = a.await(ctx, b.sandbox); err != nil {
			return nil, err
		}
	}
	if len(p.Spec.SchedulingGates) == 0 {
		return nil, errors.New("its Pod was started by something else")
	}
	if b.sandbox.started() != "" {
		return p, nil
	}
	patch := map[string]any{"metadata": meta{UID: b.sandbox.Metadata.UID,
		Annotations: map[string]string{annotationPod: p.Metadata.UID}}}
	return p, a.client.do(ctx, http.MethodPatch, a.client.sandboxPath(p.Metadata.Name), nil, typeMerge, patch, nil)
}

// finish removes a Sandbox that was deleted and whose Pod is gone, before the cluster's garbage collector
// does, and waits until it does not exist.
func (a *agents) finish(ctx context.Context, s *agentSandbox) error {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	err := a.client.deleteAt(ctx, a.client.sandboxPath(s.Metadata.Name), meta{UID: s.Metadata.UID}, nil, "Background")
	if err != nil && !isMissing(err) && !isCode(err, http.StatusConflict) {
		return err
	}
	for pause := minPause / 4; ; pause = min(2*pause, maxPause) {
		now, err := a.client.getSandbox(ctx, s.Metadata.Name)
		if isMissing(err) || err == nil && now.Metadata.UID != s.Metadata.UID {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the cluster has not removed its Sandbox: %w", context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}
