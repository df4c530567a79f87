package kubernetes

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/kubetest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// TestAgentSandbox runs the suite with Pods that the controller of agent-sandbox makes.
func TestAgentSandbox(t *testing.T) {
	kubetest.NeedAgentSandbox(t)
	runSuite(t, Options{Namespace: kubetest.Agents})
}

func openAgents(t *testing.T) (*kubetest.Cluster, *Driver) {
	kubetest.NeedAgentSandbox(t)
	c := kubetest.Start(t)
	return c, openTest(t, c, drivertest.StateDir(t), Options{Namespace: kubetest.Agents})
}

// The reasons of ends survive that the controller replaces Pods.
func TestAgentSandboxEnds(t *testing.T) {
	c, d := openAgents(t)
	testEnds(t, c, d)
}

// A server takes over the sandbox of another one.
func TestAgentSandboxClaim(t *testing.T) { testClaim(t, kubetest.Agents) }

// checkReplacement waits for the Pod that the controller makes in place of one that is gone. It never
// runs, and is not taken for the container.
func checkReplacement(t *testing.T, c *kubetest.Cluster, d *Driver, b *drivertest.Box) {
	t.Helper()
	name, err := d.names.pod(b.ID)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.client.getSandbox(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	var p pod
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		p = pod{}
		err := c.Request(http.MethodGet, d.client.podPath(name), nil, &p)
		if err == nil && p.Metadata.UID != s.started() {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the controller does not replace the Pod: %v", err)
		}
	}
	if !s.owns(&p) || len(p.Spec.SchedulingGates) != 1 || p.Spec.NodeName != "" {
		t.Errorf("the replacement can run: %+v", p)
	}
	if ids, err := d.List(t.Context()); err != nil || !slices.Contains(ids, b.ID) {
		t.Errorf("List: got %q, %v, want %s, until it is destroyed", ids, err, b.ID)
	}
	if err := d.Start(t.Context(), b.ID); err == nil || !strings.Contains(err.Error(), "is dead") {
		t.Errorf("Start of the replacement: got %v, want a refusal", err)
	}
	if conn, err := d.Dial(t.Context(), b.ID); err == nil {
		conn.Close()
		t.Error("Dial reaches the replacement")
	}
	if st, err := d.Stats(t.Context(), b.ID); err != nil || st.State != sandbox.StateDead {
		t.Errorf("Stats: got %+v, %v, want dead", st, err)
	}
	p = pod{}
	if err := c.Request(http.MethodGet, d.client.podPath(name), nil, &p); err != nil ||
		len(p.Spec.SchedulingGates) != 1 {
		t.Errorf("the replacement afterwards: %+v, %v", p.Spec.SchedulingGates, err)
	}
}

// A Pod is what the driver would make itself, and has no more than the controller's labels.
func TestAgentSandboxPod(t *testing.T) {
	c, d := openAgents(t)
	spec := sandbox.Spec{ID: "same", Template: drivertest.Template(t), Env: []string{"PRICE=$5"}}
	if err := d.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	defer d.Destroy(t.Context(), spec.ID)
	name, err := d.names.pod(spec.ID)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.find(t.Context(), name)
	if err != nil || b.sandbox == nil || b.pod == nil {
		t.Fatalf("got %+v, %v, want a Sandbox with a Pod", b, err)
	}
	no := false
	bare := openTest(t, c, drivertest.StateDir(t), Options{Namespace: kubetest.Agents, AgentSandbox: &no})
	if err := bare.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	defer bare.Destroy(t.Context(), spec.ID)
	if name, err = bare.names.pod(spec.ID); err != nil {
		t.Fatal(err)
	}
	other, err := bare.find(t.Context(), name)
	if err != nil || other.sandbox != nil {
		t.Fatalf("got %+v, %v, want a bare Pod", other, err)
	}
	if got, want := jsonOf(t, b.pod.Spec), jsonOf(t, other.pod.Spec); got != want {
		t.Errorf("the Pod of a Sandbox differs:\n got %s\nwant %s", got, want)
	}
	if got := b.pod.Metadata.Labels[labelInstance]; got != d.names.instance {
		t.Errorf("label %s is %q: the network policy does not select the Pod", labelInstance, got)
	}
	if !strings.Contains(d.Cluster().Pods, "agent-sandbox makes Pods") || !strings.Contains(bare.Cluster().Pods,
		"agent_sandbox is false") {
		t.Errorf("reports: %q, %q", d.Cluster().Pods, bare.Cluster().Pods)
	}
	// A Pod that is lost before Start loses nothing: the next one is started.
	if err := c.Request(http.MethodDelete, d.client.podPath(b.pod.Metadata.Name), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(drivertest.Attach(t, d, spec.ID).Must("echo $PRICE")); got != "$5" {
		t.Errorf("got %q", got)
	}
}

// A driver that makes Pods itself finds and removes the Sandboxes of earlier containers, and the other
// way round. The Pod that ended while no driver watched is not replaced.
func TestAgentSandboxSwitched(t *testing.T) {
	c, first := openAgents(t)
	dir := first.opts.StateDir
	template := drivertest.Template(t)
	drivertest.Start(t, first, sandbox.Spec{ID: "early", Template: template}).Must("echo kept >/tmp/file")
	drivertest.Start(t, first, sandbox.Spec{ID: "lost", Template: template})
	name, err := first.names.pod("lost")
	if err != nil {
		t.Fatal(err)
	}
	first.stop()
	<-first.done // as after a crash
	if err := c.Request(http.MethodDelete, first.client.podPath(name), nil, nil); err != nil {
		t.Fatal(err)
	}
	no := false
	second := openTest(t, c, dir, Options{Namespace: kubetest.Agents, AgentSandbox: &no})
	b := drivertest.Start(t, second, sandbox.Spec{ID: "late", Template: template})
	if got, err := second.List(t.Context()); err != nil || !slices.Equal(got, []string{"early", "late", "lost"}) {
		t.Errorf("List: got %q, %v", got, err)
	}
	if got := drivertest.Attach(t, second, "early").Must("cat /tmp/file"); got != "kept" {
		t.Errorf("got %q", got)
	}
	end := time.Now().Add(time.Minute)
	for {
		st, err := second.Stats(t.Context(), "lost")
		if err == nil && st.State == sandbox.StateDead {
			if st.Reason != sandbox.ReasonHost && st.Reason != sandbox.ReasonKilled {
				t.Errorf("got %+v", st)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("got %+v, %v, want dead", st, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	third := openTest(t, c, dir, Options{Namespace: kubetest.Agents})
	if got := drivertest.Attach(t, third, b.ID).Must("echo on"); got != "on" {
		t.Errorf("got %q", got)
	}
	for _, id := range []string{"early", "lost", "late"} {
		if err := third.Destroy(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	for _, l := range leftovers(t, c, dir) {
		t.Errorf("left behind: %s", l)
	}
}

// Without the right to Sandboxes, or without a controller, the driver makes Pods itself, unless the
// operator wants agent-sandbox.
func TestAgentSandboxMissing(t *testing.T) {
	c := kubetest.Start(t)
	yes := true
	options := func(namespace string, agents *bool) Options {
		return Options{StateDir: drivertest.StateDir(t), GuestPath: drivertest.Guest(t), Kubeconfig: c.Kubeconfig,
			Registry:  kubetest.Registry,
			Namespace: namespace, AgentSandbox: agents, CPURequest: 0.01, MemoryRequest: 0.1}
	}
	why := "the cluster does not serve agents.x-k8s.io/v1beta1"
	if os.Getenv(kubetest.AgentSandboxEnv) != "" {
		why = "the identity may not create, get, list, patch, delete sandboxes.agents.x-k8s.io in namespace sandboxes"
	}
	if d, err := Open(options(kubetest.Namespace, &yes)); err == nil || !strings.Contains(err.Error(),
		"kubernetes.agent_sandbox is true, but "+why) {
		t.Errorf("got %v, want %q", err, why)
		if d != nil {
			d.Close()
		}
	}
	d := openTest(t, c, drivertest.StateDir(t), Options{Namespace: kubetest.Namespace})
	if d.agents.creates || !strings.Contains(d.Cluster().Pods, why) {
		t.Errorf("by default: %+v, %q, want Pods because %s", d.agents, d.Cluster().Pods, why)
	}
	t.Run("NoController", func(t *testing.T) {
		kubetest.NeedAgentSandbox(t)
		resume := c.StopAgentSandbox(t)
		defer resume()
		if d, err := Open(options(kubetest.Agents, &yes)); !errors.Is(err, errNoPod) {
			t.Errorf("got %v, want %v", err, errNoPod)
			if d != nil {
				d.Close()
			}
		}
		d, err := Open(options(kubetest.Agents, nil))
		if err != nil {
			t.Fatal(err)
		}
		if d.agents.creates || !strings.Contains(d.Cluster().Pods, "has not made a Pod") {
			t.Errorf("by default: %+v", d.agents)
		}
		if err := d.Clear(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("Default", func(t *testing.T) {
		kubetest.NeedAgentSandbox(t)
		d, err := Open(options(kubetest.Agents, nil))
		if err != nil {
			t.Fatal(err)
		}
		if !d.agents.creates {
			t.Errorf("by default: %+v, want agent-sandbox", d.agents)
		}
		if err := d.Clear(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("Refused", func(t *testing.T) { // by the restricted standard: the controller reports it
		kubetest.NeedAgentSandbox(t)
		root := openTest(t, c, drivertest.StateDir(t), Options{Namespace: kubetest.Agents, Root: true})
		err := root.Create(t.Context(), sandbox.Spec{ID: "root", Template: drivertest.Template(t)})
		if err == nil || !strings.Contains(err.Error(), "restricted") {
			t.Errorf("got %v, want the standard's refusal", err)
		}
		for _, l := range leftovers(t, c, root.opts.StateDir) {
			t.Errorf("left behind: %s", l)
		}
	})
}

// TestStartTimes logs how long a container takes from Create to the output of its first command, as a
// bare Pod and as a Sandbox, one after the other.
func TestStartTimes(t *testing.T) {
	c, agents := openAgents(t)
	no := false
	bare := openTest(t, c, drivertest.StateDir(t), Options{Namespace: kubetest.Agents, AgentSandbox: &no})
	template := drivertest.Template(t)
	took := map[*Driver][]time.Duration{}
	removed := map[*Driver][]time.Duration{}
	for i := range 16 {
		for _, d := range []*Driver{bare, agents} {
			began := time.Now()
			b := drivertest.Start(t, d, sandbox.Spec{ID: "timed", Template: template})
			b.Must("echo up")
			first := time.Now()
			if err := d.Destroy(t.Context(), b.ID); err != nil {
				t.Fatal(err)
			}
			if i > 0 { // the first one pushes and pulls the image
				took[d] = append(took[d], first.Sub(began).Round(time.Millisecond))
				removed[d] = append(removed[d], time.Since(first).Round(time.Millisecond))
			}
		}
	}
	for _, d := range []*Driver{bare, agents} {
		for what, all := range map[string][]time.Duration{"from Create to the first output": took[d],
			"Destroy": removed[d]} {
			slices.Sort(all)
			t.Logf("%s: %s: median %v, from %v to %v", d.Cluster().Pods, what, all[len(all)/2], all[0], all[len(all)-1])
		}
	}
}

// jsonOf returns a Pod's specification as the API has it.
func jsonOf(t *testing.T, spec podSpec) string {
	t.Helper()
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
