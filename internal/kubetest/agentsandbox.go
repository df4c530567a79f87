package kubetest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

// AgentSandboxEnv names a directory with agent-sandbox, which "make test-cluster" makes. With it the cluster
// has the resource Sandbox and its controller, unmodified. The directory has:
//
//	agent-sandbox-controller        the program
//	agents.x-k8s.io_sandboxes.yaml  the resource
//	rbac.generated.yaml             the controller's rights
const AgentSandboxEnv = "BERTH_TEST_AGENT_SANDBOX"

// agentSandbox is the name of the controller's process and user.
const agentSandbox = "agent-sandbox-controller"

// NeedAgentSandbox skips a test if the cluster has no agent-sandbox.
func NeedAgentSandbox(tb testing.TB) {
	tb.Helper()
	if os.Getenv(AgentSandboxEnv) == "" {
		tb.Skip("skipped: " + AgentSandboxEnv + " names no directory with agent-sandbox")
	}
}

// StopAgentSandbox makes the controller of agent-sandbox stop until the returned function is called.
func (c *Cluster) StopAgentSandbox(tb testing.TB) (resume func()) {
	tb.Helper()
	if err := c.Signal(agentSandbox, unix.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
	return func() {
		tb.Helper()
		if err := c.Signal(agentSandbox, unix.SIGCONT); err != nil {
			tb.Error(err)
		}
	}
}

// installAgentSandbox creates the resource. Its older versions are not converted: that would need the
// controller's webhook, and a network between the API server and Pods.
func (c *Cluster) installAgentSandbox() error {
	dir := os.Getenv(AgentSandboxEnv)
	if dir == "" {
		return nil
	}
	all, err := readObjects(filepath.Join(dir, "agents.x-k8s.io_sandboxes.yaml"))
	if err != nil {
		return err
	}
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	for _, o := range all {
		spec, ok := o["spec"].(map[string]any)
		if !ok {
			return errors.New("agent-sandbox: a resource definition without a spec")
		}
		spec["conversion"] = object{"strategy": "None"}
		if err := c.Request(http.MethodPost, definitions, o, nil); err != nil {
			return err
		}
	}
	return c.await("agent-sandbox's API", func() error {
		return c.Request(http.MethodGet, "/apis/agents.x-k8s.io/v1beta1/sandboxes", nil, nil)
	})
}

// startAgentSandbox starts the controller with the rights of its own installation.
func (c *Cluster) startAgentSandbox() error {
	dir := os.Getenv(AgentSandboxEnv)
	if dir == "" {
		return nil
	}
	all, err := readObjects(filepath.Join(dir, "rbac.generated.yaml"))
	if err != nil {
		return err
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	for _, o := range all {
		if err := c.Request(http.MethodPost, rbac+"clusterroles", o, nil); err != nil {
			return err
		}
	}
	if err := c.Request(http.MethodPost, rbac+"clusterrolebindings",
		object{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
			"metadata": object{"name": agentSandbox},
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": agentSandbox},
			"subjects": []any{object{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": agentSandbox}}},
		nil); err != nil {
		return err
	}
	return c.start(agentSandbox, filepath.Join(dir, agentSandbox),
		"--kubeconfig="+c.pki.path(agentSandbox+".kubeconfig"), "--leader-elect=false",
		"--enable-webhook=false", "--metrics-bind-address=0", "--health-probe-bind-address=0")
}

// readObjects reads a YAML file of objects.
func readObjects(file string) (all []map[string]any, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for dec := yaml.NewDecoder(f); ; {
		var o map[string]any
		if err := dec.Decode(&o); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if len(o) > 0 {
			all = append(all, o)
		}
	}
}
