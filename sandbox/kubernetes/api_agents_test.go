package kubernetes

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-run/berth/sandbox"
)

// serveAgents answers requests about agent-sandbox.
func (a *apiServer) serveAgents(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/apis/"+agentVersion)
	switch name, isObject := strings.CutPrefix(path, "/namespaces/n/sandboxes/"); {
	case ok && a.sandboxes == nil, !ok && !strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		a.refuse(w, http.StatusNotFound, "NotFound", "")
	case !ok:
		a.answer(w, http.StatusCreated, map[string]any{"status": map[string]bool{"allowed": true}})
	case path == "":
		a.answer(w, http.StatusOK, map[string]any{"resources": []map[string]string{{"name": agentPlural}}})
	case isObject:
		a.serveAgent(w, r, name)
	case r.Method == http.MethodPost:
		s := &agentSandbox{}
		if err := json.NewDecoder(r.Body).Decode(s); err != nil {
			a.t.Error(err)
		}
		if r.URL.Query().Get("fieldValidation") != "Strict" {
			a.t.Error("a Sandbox is created without a check of its fields")
		}
		a.version++
		s.Metadata.UID, s.Metadata.ResourceVersion = "sandbox-"+strconv.Itoa(a.version), "1"
		a.sandboxes[s.Metadata.Name] = s
		a.control(s.Metadata.Name)
		a.answer(w, http.StatusCreated, s)
	default:
		a.list(w, metasOf(a.sandboxes, func(s *agentSandbox) meta { return s.Metadata }), r.URL.Query())
	}
}

func (a *apiServer) serveAgent(w http.ResponseWriter, r *http.Request, name string) {
	s := a.sandboxes[name]
	if s == nil {
		a.refuse(w, http.StatusNotFound, "NotFound", name)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		a.t.Error(err)
	}
	var in struct {
		Metadata, Preconditions meta
		Spec                    agentSpec
		PropagationPolicy       string
	}
	if r.Method != http.MethodGet {
		if err := json.Unmarshal(body, &in); err != nil {
			a.t.Error(err)
		}
		at := in.Metadata
		if r.Method == http.MethodDelete {
			at = in.Preconditions
		}
		if a.changes > 0 {
			a.changes--
			a.version++
			s.Metadata.ResourceVersion = "s" + strconv.Itoa(a.version)
		}
		if at.UID != s.Metadata.UID || at.ResourceVersion != "" && at.ResourceVersion != s.Metadata.ResourceVersion {
			a.refuse(w, http.StatusConflict, "Conflict", name)
			return
		}
	}
	switch r.Method {
	case http.MethodPatch:
		maps.Copy(s.Metadata.Labels, in.Metadata.Labels)
		maps.Copy(s.Metadata.Annotations, in.Metadata.Annotations)
		maps.Copy(s.Spec.PodTemplate.Metadata.Labels, in.Spec.PodTemplate.Metadata.Labels)
		a.version++
		s.Metadata.ResourceVersion = "p" + strconv.Itoa(a.version)
	case http.MethodDelete:
		if in.PropagationPolicy != "Foreground" {
			a.t.Errorf("a Sandbox is deleted with the propagation %q", in.PropagationPolicy)
		}
		delete(a.sandboxes, name)
		delete(a.pods, name)
	}
	a.control(name)
	a.answer(w, http.StatusOK, s)
}

// control does what the controller of agent-sandbox does with a Sandbox: it makes its Pod, again if it is
// gone, and restores the labels of the template.
func (a *apiServer) control(name string) {
	s := a.sandboxes[name]
	if s == nil {
		return
	}
	if p := a.pods[name]; p != nil {
		maps.Copy(p.Metadata.Labels, s.Spec.PodTemplate.Metadata.Labels)
		return
	}
	a.version++
	template := s.Spec.PodTemplate
	a.pods[name] = &pod{Metadata: meta{Name: name, UID: "made-" + strconv.Itoa(a.version), ResourceVersion: "1",
		Labels:      maps.Clone(template.Metadata.Labels),
		Annotations: map[string]string{},
		Owners: []ownerReference{{APIVersion: agentVersion, Kind: agentKind, UID: s.Metadata.UID,
			Controller: true}}},
		Spec: template.Spec, Status: podStatus{Phase: "Pending"}}
}

// The driver's requests about Sandboxes: one is created strictly, started once, moves between servers with
// its Pod's label, is dead when its Pod was replaced, and leaves nothing.
func TestAgentRequests(t *testing.T) {
	api := newAPIServer(t)
	a, b := api.driver("node-a"), api.driver("node-b")
	if err := a.findAgentSandbox(t.Context()); err != nil || a.agents.creates || !strings.Contains(a.Cluster().Pods,
		"does not serve "+agentVersion) {
		t.Fatalf("without agent-sandbox: %+v, %v", a.agents, err)
	}
	api.sandboxes = map[string]*agentSandbox{}
	for _, d := range []*Driver{a, b} {
		if err := d.findAgentSandbox(t.Context()); err != nil || !d.agents.creates {
			t.Fatalf("with agent-sandbox: %+v, %v", d.agents, err)
		}
	}
	name, err := a.names.pod("box")
	if err != nil {
		t.Fatal(err)
	}
	p := a.pods.bare(name, kindSandbox, "image", owner{uid: nobodyID, gid: nobodyID})
	p.Metadata.Annotations = map[string]string{annotationSandbox: "box", annotationEpoch: "0"}
	p.Spec.SchedulingGates = []named{{gate}}
	if err := a.make(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	state := func(d *Driver, want sandbox.State, words string) {
		t.Helper()
		if st, err := d.Stats(t.Context(), "box"); err != nil || st.State != want || !strings.Contains(st.Detail,
			words) {
			t.Fatalf("got %+v, %v, want %s with %q", st, err, want, words)
		}
	}
	state(a, sandbox.StateCreated, "")
	lose := func() { // what has been made is deleted by something else
		t.Helper()
		if err := a.client.deletePod(t.Context(), name, api.pods[name].Metadata.UID, nil); err != nil {
			t.Fatal(err)
		}
		if api.pods[name] == nil {
			t.Fatal("the Pod is not replaced")
		}
	}
	lose()
	state(a, sandbox.StateCreated, "") // nothing is lost
	if err := a.Start(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	state(a, sandbox.StateRunning, "")
	if err := a.Start(t.Context(), "box"); err == nil {
		t.Error("it can be started twice")
	}
	api.changes = 3
	if err := b.Claim(t.Context(), "box", 1); err != nil {
		t.Fatal(err)
	}
	if got := api.pods[name].Metadata.Labels[labelServer]; got != "node-b" {
		t.Errorf("the Pod's label names %q", got)
	}
	if err := a.Claim(t.Context(), "box", 1); !errors.Is(err, sandbox.ErrClaimed) {
		t.Errorf("a second claim: got %v, want %v", err, sandbox.ErrClaimed)
	}
	if _, err := a.Stats(t.Context(), "box"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("Stats by the former server: got %v, want %v", err, sandbox.ErrNotFound)
	}
	if err := a.Destroy(t.Context(), "box"); err != nil || api.sandboxes[name] == nil {
		t.Errorf("Destroy by the former server: %v, %v", err, api.sandboxes)
	}
	if all, err := a.Claimed(t.Context()); err != nil || !maps.Equal(all, map[string]string{"box": "node-b"}) {
		t.Errorf("Claimed: got %v, %v", all, err)
	}
	lose()
	state(b, sandbox.StateDead, "its Pod was removed")
	if err := b.Start(t.Context(), "box"); err == nil || len(api.pods[name].Spec.SchedulingGates) == 0 {
		t.Errorf("the replacement was started: %v", err)
	}
	if ids, err := b.List(t.Context()); err != nil || !slices.Equal(ids, []string{"box"}) {
		t.Errorf("List: got %q, %v", ids, err)
	}
	api.changes = 3
	if err := b.Destroy(t.Context(), "box"); err != nil || len(api.sandboxes)+len(api.pods) > 0 {
		t.Errorf("Destroy: %v, left %v, %v", err, api.sandboxes, api.pods)
	}
	if err := b.Destroy(t.Context(), "box"); err != nil {
		t.Errorf("Destroy again: %v", err)
	}
}
