package kubetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// startTimeout bounds the start of the cluster.
const startTimeout = 5 * time.Minute

// kubeconfigEnv passes the shared cluster on to processes that a test starts.
const kubeconfigEnv = "BERTH_KUBETEST_KUBECONFIG"

// shared is the cluster that Start returns.
var shared struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

// Start returns the cluster that all tests of the process share, and starts it at the first call.
// The package's TestMain must call Main. It skips the test without ProgramEnv.
func Start(tb testing.TB) *Cluster {
	tb.Helper()
	if os.Getenv(ProgramEnv) == "" {
		tb.Skip("skipped: make test-cluster runs the tests with Kubernetes")
	}
	c, err := Open()
	if err != nil {
		tb.Fatalf("start the cluster: %v", err)
	}
	return c
}

// Open is Start for a program that is no test, which calls Run.
func Open() (*Cluster, error) {
	shared.once.Do(func() {
		if file := os.Getenv(kubeconfigEnv); file != "" {
			shared.cluster = &Cluster{Kubeconfig: file}
			return
		}
		shared.cluster, shared.err = start()
	})
	return shared.cluster, shared.err
}

func stopShared() error {
	if shared.cluster == nil {
		return nil
	}
	return shared.cluster.stop()
}

func start() (*Cluster, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "berth-test")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	removeStale(cache)
	dir, err := os.MkdirTemp(cache, dirPrefix)
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir}
	if err := c.run(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, c.logs()), c.stop())
	}
	return c, os.Setenv(kubeconfigEnv, c.Kubeconfig)
}

const dirPrefix = "kube-"

// removeStale removes the directories of clusters whose tests were killed. Tests with a cluster
// run one after the other, because they share a control group.
func removeStale(cache string) {
	old, _ := filepath.Glob(filepath.Join(cache, dirPrefix+"*"))
	for _, dir := range old {
		_ = os.RemoveAll(dir)
	}
}

// run starts the components and waits until the node is ready.
func (c *Cluster) run() error {
	if err := c.issue(); err != nil {
		return err
	}
	if err := c.startRegistry(); err != nil {
		return err
	}
	if err := c.startServer(); err != nil {
		return err
	}
	if err := c.await("the API server", func() error { return c.Request("GET", "/readyz", nil, nil) }); err != nil {
		return err
	}
	if err := c.installAgentSandbox(); err != nil { // before the garbage collector looks for resources
		return err
	}
	if err := c.startControllers(); err != nil {
		return err
	}
	if err := c.authorize(); err != nil {
		return err
	}
	if err := c.startAgentSandbox(); err != nil {
		return err
	}
	if err := c.startNode(); err != nil {
		return err
	}
	if err := c.await("the node", func() error { return c.nodeReady(nodeName) }); err != nil {
		return err
	}
	return c.addPeer()
}
