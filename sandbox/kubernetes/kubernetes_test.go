package kubernetes

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/internal/kubetest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

// TestTemplate builds the template that the other tests use, which needs a network: the cluster's
// has none.
func TestTemplate(t *testing.T) {
	if root := drivertest.Template(t).Path; root == "" {
		t.Error("no template")
	}
}

// TestDriver runs the suite in a namespace that enforces the restricted Pod Security Standard.
func TestDriver(t *testing.T) { runSuite(t, Options{Namespace: kubetest.Namespace}) }

// TestRoot runs it with sudo, in a namespace that enforces the baseline.
func TestRoot(t *testing.T) { runSuite(t, Options{Namespace: kubetest.Baseline, Root: true}) }

func runSuite(t *testing.T, opts Options) {
	c := kubetest.Start(t)
	drivertest.Run(t, drivertest.Harness{
		Open:       func(tb testing.TB, stateDir string) sandbox.Driver { return openTest(tb, c, stateDir, opts) },
		Template:   drivertest.Template(t),
		Interfaces: []string{"eth0"}, // the node's firewall drops its traffic
		Unfiltered: opts.Root,        // containerd 1.6 permits io_uring and AF_VSOCK
		BootID:     true,             // runc masks only what Kubernetes asks for
		Leftovers:  func(stateDir string) []string { return leftovers(t, c, stateDir) },
	})
}

// openTest opens a driver with this repository's guest. At the end of the test it removes what
// Open added to the cluster.
func openTest(tb testing.TB, c *kubetest.Cluster, stateDir string, opts Options) *Driver {
	tb.Helper()
	if opts.Namespace == kubetest.Agents && opts.AgentSandbox == nil {
		kubetest.NeedAgentSandbox(tb)
		yes := true
		opts.AgentSandbox = &yes
	}
	opts.StateDir, opts.GuestPath, opts.Kubeconfig, opts.Registry = stateDir, drivertest.Guest(tb), c.Kubeconfig,
		kubetest.Registry
	opts.CPURequest, opts.MemoryRequest = 0.01, 0.1
	d, err := Open(opts)
	if err != nil {
		tb.Fatal(err)
	}
	d.usages.fresh = true
	tb.Cleanup(func() {
		if err := d.Clear(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return d
}

// open opens a driver in the restricted namespace, in a directory of its own.
func open(t *testing.T) (*kubetest.Cluster, *Driver) {
	c := kubetest.Start(t)
	return c, openTest(t, c, drivertest.StateDir(t), Options{Namespace: kubetest.Namespace})
}

// leftovers returns the Pods and Sandboxes that a state directory's sandboxes left.
func leftovers(t *testing.T, c *kubetest.Cluster, stateDir string) []string {
	instance, err := os.ReadFile(filepath.Join(stateDir, "instance"))
	if err != nil {
		t.Error(err)
		return nil
	}
	id, err := loadIdentity(c.Kubeconfig, "")
	if err != nil {
		t.Error(err)
		return nil
	}
	var left []string
	label := labelInstance + "=" + string(instance) + "," + labelKind + "=" + kindSandbox
	for _, id.namespace = range []string{kubetest.Namespace, kubetest.Agents, kubetest.Baseline} {
		client := newClient(id)
		pods, _, err := client.listPods(context.Background(), label)
		if err != nil {
			t.Error(err)
		}
		if id.namespace == kubetest.Agents && os.Getenv(kubetest.AgentSandboxEnv) != "" {
			sandboxes, err := client.listSandboxes(context.Background(), label)
			if err != nil {
				t.Error(err)
			}
			for _, s := range sandboxes {
				left = append(left, "Sandbox "+s.Name)
			}
		}
		for _, p := range pods {
			left = append(left, "Pod "+p.Name)
		}
	}
	return left
}
