package kubernetes

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/kubetest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// dead waits for the end of a sandbox and returns it.
func dead(b *drivertest.Box) sandbox.Stats {
	return b.Await("the end", func(st sandbox.Stats) bool { return st.State == sandbox.StateDead })
}

// The cluster's ways to end a Pod become the reason of the sandbox's end.
func TestEnds(t *testing.T) {
	c, d := open(t)
	testEnds(t, c, d)
}

func testEnds(t *testing.T, c *kubetest.Cluster, d *Driver) {
	template := drivertest.Template(t)
	pods := d.client.podsPath() + "/"
	path := func(id string) string {
		name, err := d.names.pod(id)
		if err != nil {
			t.Fatal(err)
		}
		return pods + name
	}
	start := func(t *testing.T, id string, l sandbox.Limits) *drivertest.Box {
		return drivertest.Start(t, d, sandbox.Spec{ID: id, Template: template, Limits: l})
	}
	want := func(t *testing.T, got sandbox.Stats, reason sandbox.Reason, words string) {
		t.Helper()
		if got.Reason != reason || !strings.Contains(got.Detail, words) {
			t.Errorf("got %+v, want reason %q with %q", got, reason, words)
		}
	}
	t.Run("OOM", func(t *testing.T) {
		// The guest ends commands before the kernel would. Here files in memory leave too little for
		// the guest itself.
		b := start(t, "oom", sandbox.Limits{Memory: 12 << 20})
		want(t, b.Await("the end", func(st sandbox.Stats) bool {
			if st.State != sandbox.StateDead {
				b.Last("while :; do head -c 10M /dev/zero >/dev/shm/fill; tail /dev/zero; done")
			}
			return st.State == sandbox.StateDead
		}), sandbox.ReasonOOM, "memory limit")
	})
	t.Run("Disk", func(t *testing.T) {
		b := start(t, "disk", sandbox.Limits{Disk: 64 << 20})
		b.Must("head -c 200M /dev/zero >fill")
		want(t, dead(b), sandbox.ReasonEvicted, "ephemeral local storage")
	})
	t.Run("Evicted", func(t *testing.T) {
		b := start(t, "drained", sandbox.Limits{})
		name := filepath.Base(path(b.ID))
		if err := c.Request(http.MethodPost, path(b.ID)+"/eviction", map[string]any{"apiVersion": "policy/v1",
			"kind":     "Eviction",
			"metadata": map[string]any{"name": name, "namespace": d.client.namespace}}, nil); err != nil {
			t.Fatal(err)
		}
		want(t, dead(b), sandbox.ReasonEvicted, "EvictionByEvictionAPI")
		if d.agents.creates {
			checkReplacement(t, c, d, b)
		} else {
			awaitGone(t, c, path(b.ID))
		}
		want(t, dead(b), sandbox.ReasonEvicted, "EvictionByEvictionAPI") // also when the Pod is gone
	})
	t.Run("Deleted", func(t *testing.T) {
		b := start(t, "deleted", sandbox.Limits{})
		if err := c.Request(http.MethodDelete, path(b.ID), nil, nil); err != nil {
			t.Fatal(err)
		}
		if d.agents.creates {
			checkReplacement(t, c, d, b)
		} else {
			awaitGone(t, c, path(b.ID))
		}
		want(t, dead(b), sandbox.ReasonKilled, "")
		if err := d.Destroy(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Stats(t.Context(), b.ID); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("after Destroy: got %v, want %v", err, sandbox.ErrNotFound)
		}
	})
	t.Run("Unscheduled", func(t *testing.T) {
		if err := d.Create(t.Context(), sandbox.Spec{ID: "huge", Template: template,
			Limits: sandbox.Limits{Memory: 1 << 50}}); err != nil {
			t.Fatal(err)
		}
		defer d.Destroy(t.Context(), "huge")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := d.Start(ctx, "huge"); err == nil || !strings.Contains(err.Error(), "Insufficient memory") {
			t.Errorf("got %v, want the scheduler's words", err)
		}
	})
	t.Run("NoImage", func(t *testing.T) {
		if err := d.Create(t.Context(), sandbox.Spec{ID: "imageless", Template: template}); err != nil {
			t.Fatal(err)
		}
		defer d.Destroy(t.Context(), "imageless")
		lost := kubetest.Registry + ":lost"
		if err := c.Request(http.MethodPatch, path("imageless"),
			map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
				"name": containerName, "image": lost}}}}, nil); err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context(), "imageless"); err == nil || !strings.Contains(err.Error(), "ErrImagePull") &&
			!strings.Contains(err.Error(), "ImagePullBackOff") {
			t.Errorf("got %v, want that the image cannot be pulled", err)
		}
		if st, err := d.Stats(t.Context(), "imageless"); err != nil || st.State != sandbox.StateDead ||
			st.Reason != sandbox.ReasonHost {
			t.Errorf("got %+v, %v, want dead with reason %q", st, err, sandbox.ReasonHost)
		}
	})
	t.Run("NodeLost", func(t *testing.T) { // the last one
		b := start(t, "lost", sandbox.Limits{})
		if err := c.Signal("kubelet", unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer c.Signal("kubelet", unix.SIGCONT)
		want(t, dead(b), sandbox.ReasonHost, "DeletionByTaintManager")
		if err := d.Destroy(t.Context(), b.ID); err != nil {
			t.Errorf("Destroy on a lost node: %v", err)
		}
		if ids, err := d.List(t.Context()); err != nil || len(ids) != 0 {
			t.Errorf("List: got %q, %v, want none", ids, err)
		}
		for _, l := range leftovers(t, c, d.opts.StateDir) {
			t.Errorf("left behind: %s", l)
		}
	})
}

// awaitGone waits until a Pod does not exist.
func awaitGone(t *testing.T, c *kubetest.Cluster, path string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := c.Request(http.MethodGet, path, nil, nil)
		if err != nil && strings.Contains(err.Error(), "404") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s exists: %v", path, err)
		}
	}
}

// A cluster whose network does not enforce network policies is refused.
func TestTraffic(t *testing.T) {
	c := kubetest.Start(t)
	if err := kubetest.Isolate(false); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := kubetest.Isolate(true); err != nil {
			t.Error(err)
		}
	}()
	d, err := Open(Options{StateDir: drivertest.StateDir(t), GuestPath: drivertest.Guest(t), Kubeconfig: c.Kubeconfig,
		Namespace: kubetest.Namespace,
		Registry:  kubetest.Registry, CPURequest: 0.1, MemoryRequest: 1})
	if !errors.Is(err, ErrTraffic) || !strings.Contains(err.Error(), "reaches 10.99.0.1:6443") {
		t.Errorf("got %v, want %v", err, ErrTraffic)
	}
	if d != nil {
		d.Close()
	}
}

// Pods satisfy the restricted standard, which the namespace enforces, and have no rights in the
// cluster. With sudo they are refused there.
func TestPosture(t *testing.T) {
	c, d := open(t)
	b := drivertest.Start(t, d, sandbox.Spec{ID: "posture", Template: drivertest.Template(t),
		Env: []string{"PRICE=$(HOME) $5"}})
	for script, want := range map[string]string{
		"grep CapEff /proc/self/status | cut -f2":     "0000000000000000",
		"grep CapBnd /proc/self/status | cut -f2":     "0000000000000000",
		"grep NoNewPrivs /proc/self/status | cut -f2": "1",
		"grep Seccomp: /proc/self/status | cut -f2":   "2",
		"id -u; grep Uid /proc/1/status | cut -f2":    "1000\n1000",
		"ls /var/run/secrets 2>/dev/null | wc -l":     "0",
		"env | grep _SERVICE_ | grep -v ^KUBERNETES_": "",
		"cat /etc/resolv.conf | head -1":              "nameserver 127.0.0.1",
		"echo $PRICE":                                 "$(HOME) $5",
		"hostname":                                    "sandbox",
	} {
		if got := strings.TrimSpace(b.Sh(script).Stdout); got != want {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}
	root := openTest(t, c, drivertest.StateDir(t), Options{Namespace: kubetest.Namespace, Root: true})
	err := root.Create(t.Context(), sandbox.Spec{ID: "root", Template: drivertest.Template(t)})
	if err == nil || !strings.Contains(err.Error(), "restricted") {
		t.Errorf("with sudo: got %v, want the standard's refusal", err)
	}
}

// An operator's mistakes have clear errors.
func TestOpenErrors(t *testing.T) {
	c := kubetest.Start(t)
	good := Options{GuestPath: drivertest.Guest(t), Kubeconfig: c.Kubeconfig, Namespace: kubetest.Namespace,
		Registry: kubetest.Registry}
	for words, change := range map[string]func(*Options){
		"no registry given":    func(o *Options) { o.Registry = "" },
		"does not speak HTTPS": func(o *Options) { o.Registry = "10.99.0.1:5000/berth" },
		`runtimeclasses.node.k8s.io "kata" not found`: func(o *Options) {
			o.RuntimeClass = "kata"
			o.Kubeconfig = filepath.Join(filepath.Dir(c.Kubeconfig), "admin.kubeconfig")
		},
		"forbidden":                 func(o *Options) { o.Namespace = "kube-system" },
		`it has no context "other"`: func(o *Options) { o.Context = "other" },
		"no such file":              func(o *Options) { o.Kubeconfig = "/nonexistent" },
	} {
		opts := good
		opts.StateDir = drivertest.StateDir(t)
		change(&opts)
		d, err := Open(opts)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want %q", err, words)
		}
		if d != nil {
			d.Close()
		}
	}
}
