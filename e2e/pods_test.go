package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/berth-run/berth/internal/freeport"
	"github.com/berth-run/berth/internal/kubetest"
	"github.com/berth-run/berth/internal/s3test"
	"github.com/berth-run/berth/store/postgres/pgtest"
)

// newPodFleet starts servers whose containers are Pods in a namespace of one real Kubernetes cluster, with a
// pool each. In kubetest.Agents the Pods are made by agent-sandbox.
func newPodFleet(t *testing.T, c *kubetest.Cluster, namespace string, servers, pool int) *fleet {
	t.Helper()
	tiny, err := name.ParseReference(kubetest.Registry + ":tiny")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tiny, tinyImage(t, "")); err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, db: pgtest.Start(t), bucket: s3test.Start(t)}
	for range servers {
		s := &server{t: t, state: t.TempDir(), log: &logBuffer{}}
		config := filepath.Join(t.TempDir(), "berth.yaml")
		text := fmt.Sprintf(`driver: kubernetes
template: tiny
store: %s
blobs: %s
cluster: {listen: %q, lease: 3s}
containers: {pool: %d}
metrics: {listen: %q}
kubernetes: {kubeconfig: %q, namespace: %s, registry: %s, cpu_request: 0.01, memory_request: 0.1}
`, f.db.URL(), f.bucket.Bucket("berth"), freeport.Addr(t), pool, freeport.Addr(t), c.Kubeconfig, namespace, kubetest.Registry)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.state, "seal.key"), []byte(strings.Repeat("5e", 32)+"\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		pull := exec.Command(binary(t), "image", "pull", tiny.Name(), "--insecure", "--if-missing", "--name", "tiny",
			"--state", s.state)
		for range 2 { // the second time does nothing
			if out, err := pull.CombinedOutput(); err != nil {
				t.Fatalf("image pull: %v: %s", err, out)
			}
			pull = exec.Command(binary(t), "image", "pull", "127.0.0.1:1/none:1", "--insecure", "--if-missing",
				"--name", "tiny", "--state", s.state)
		}
		s.args, s.addr = []string{"--config", config}, freeport.Addr(t)
		s.start()
		made := "the driver makes the Pods of containers"
		if namespace == kubetest.Agents {
			made = "agent-sandbox makes the Pods of containers"
		}
		if !strings.Contains(s.log.String(), made) {
			t.Errorf("the log lacks %q:\n%s", made, s.log)
		}
		f.servers = append(f.servers, s)
	}
	t.Cleanup(f.close)
	f.url = f.proxy()
	return f
}

// has returns the server that has a container, and how often it moved, as the server at a URL says.
func (f *fleet) has(ctx context.Context, at, container string) (string, int, error) {
	var got struct {
		Berth struct {
			Server string
			Moves  int
		}
	}
	err := patiently(ctx, "GET", at+"/v1/containers/"+container, "", nil, &got)
	return got.Berth.Server, got.Berth.Moves, err
}

// serverOf returns the server with a name in the cluster.
func (f *fleet) serverOf(node string) *server {
	f.t.Helper()
	for _, s := range f.servers {
		if id, err := os.ReadFile(filepath.Join(s.state, "node_id")); err == nil &&
			strings.TrimSpace(string(id)) == node {
			return s
		}
	}
	f.t.Fatalf("no server is %q", node)
	return nil
}

var (
	metricsAt = regexp.MustCompile(`msg="serving metrics" url=(\S+)`)
	fullPool  = regexp.MustCompile(`(?m)^berth_pool_ready\{[^}]*\} 2$`)
)

// TestPodsStart creates containers as Pods and runs their first command, without a pool and with one,
// and logs the times.
func TestPodsStart(t *testing.T) { testPodsStart(t, kubetest.Namespace) }

// TestPodsAgentStart does so with Pods that agent-sandbox makes.
func TestPodsAgentStart(t *testing.T) {
	kubetest.NeedAgentSandbox(t)
	testPodsStart(t, kubetest.Agents)
}

func testPodsStart(t *testing.T, namespace string) {
	c := kubetest.Start(t)
	for how, pool := range map[string]int{"cold": 0, "pool": 2} {
		t.Run(how, func(t *testing.T) {
			f := newPodFleet(t, c, namespace, 1, pool)
			ctx := within(t, 5*time.Minute)
			s := f.servers[0]
			var took []time.Duration
			for i := range 6 {
				ready := func() bool {
					at := metricsAt.FindStringSubmatch(s.log.String())
					if at == nil {
						return false
					}
					text, err := getOnce(ctx, at[1])
					return err == nil && fullPool.Match(text)
				}
				if pool > 0 {
					s.waitUntil("the pool is full", ready)
				}
				began := time.Now()
				var made struct {
					ID    string
					Berth struct{ Start struct{ How string } }
				}
				if _, err := call(ctx, "POST", s.url+"/v1/containers", "", map[string]any{"name": "timed"},
					&made); err != nil {
					t.Fatal(err)
				}
				f.run(ctx, s, made.ID, "echo up", "up\n")
				if i > 0 { // the first one pushes and pulls the image
					took = append(took, time.Since(began).Round(time.Millisecond))
					t.Logf("from the request that creates a container to the output of its first command: %v",
						took[len(took)-1])
				}
				if err := patiently(ctx, "GET", s.url+"/v1/containers/"+made.ID, "", nil, &made); err != nil ||
					made.Berth.Start.How != how {
					t.Errorf("the container started %q, %v, want %q", made.Berth.Start.How, err, how)
				}
				if _, err := call(ctx, "DELETE", s.url+"/v1/containers/"+made.ID, "", nil, nil); err != nil {
					t.Error(err)
				}
			}
			slices.Sort(took)
			t.Logf("median %v, from %v to %v", took[len(took)/2], took[0], took[len(took)-1])
		})
	}
}

// TestPodsMove kills the server that has a Pod in the middle of a command. Another one takes the Pod
// over within a few leases, the command continues and runs once, and the response is completed. When
// the next server stops in order, the container moves again.
func TestPodsMove(t *testing.T) { testPodsMove(t, kubetest.Namespace) }

// TestPodsAgentMove does so with Pods that agent-sandbox makes.
func TestPodsAgentMove(t *testing.T) {
	kubetest.NeedAgentSandbox(t)
	testPodsMove(t, kubetest.Agents)
}

func testPodsMove(t *testing.T, namespace string) {
	c := kubetest.Start(t)
	f := newPodFleet(t, c, namespace, 3, 0)
	ctx := within(t, 10*time.Minute)
	a, b := f.servers[0], f.servers[1]
	began := time.Now()
	var r memberAnswer
	if _, err := call(ctx, "POST", a.url+"/v1/responses", "",
		task("echo x >> count; while [ ! -e go ]; do id >/dev/null; done; cat count", "cat count"), &r); err != nil {
		t.Fatal(err)
	}
	container := r.container()
	sh := func(s *server, script string) string {
		t.Helper()
		var ran struct{ Stdout string }
		for {
			err := patiently(ctx, "POST", s.url+"/v1/containers/"+container+"/exec", "",
				map[string]any{"command": script}, &ran)
			if err == nil {
				return ran.Stdout
			}
			// the container is created at its first use
			if ctx.Err() != nil || !strings.Contains(err.Error(), "404 Not Found") {
				t.Fatal(err)
			}
		}
	}
	for sh(b, "cat count 2>/dev/null || true") != "x\n" {
	}
	t.Logf("from the request to the first command in a Pod: %v", time.Since(began).Round(10*time.Millisecond))
	first, _, err := f.has(ctx, b.url, container)
	if err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	f.serverOf(first).kill()
	alive := f.servers[1]
	if f.serverOf(first) == alive {
		alive = f.servers[2]
	}
	sh(alive, "echo >go")
	t.Logf("from the kill to a command in the same Pod on another server: %v",
		time.Since(killed).Round(10*time.Millisecond))
	if last, err := follow(ctx, alive.url, r.ID, nil); err != nil || last != "response.completed" {
		t.Errorf("the response: last event %q, %v", last, err)
	}
	var done memberAnswer
	if _, err := call(ctx, "GET", alive.url+"/v1/responses/"+r.ID, "", nil, &done); err != nil ||
		strings.Count(jsonText(done), `x\n`) < 2 || strings.Contains(jsonText(done), `x\nx`) {
		t.Errorf("the commands printed %s, %v", jsonText(done), err)
	}
	second, moves, err := f.has(ctx, alive.url, container)
	if err != nil || second == first || moves != 1 {
		t.Errorf("the container is on %s and moved %d times, %v", second, moves, err)
	}
	// The former server returns, and forwards what concerns the container.
	f.serverOf(first).start()
	if got := sh(f.serverOf(first), "cat count"); got != "x\n" {
		t.Errorf("through the server that returned: %q", got)
	}
	// A server that stops in order gives its containers away immediately.
	stopped := f.serverOf(second)
	if err := stopped.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := stopped.cmd.Wait(); err != nil {
		t.Errorf("a server did not stop in order: %v", err)
	}
	if got := sh(f.serverOf(first), "cat count"); got != "x\n" {
		t.Errorf("after its server stopped: %q", got)
	}
	if third, moves, err := f.has(ctx, f.serverOf(first).url, container); err != nil || third == second || moves != 2 {
		t.Errorf("the container is on %s and moved %d times, %v", third, moves, err)
	}
	stopped.start()
	if _, err := call(ctx, "DELETE", stopped.url+"/v1/containers/"+container, "", nil, nil); err != nil {
		t.Error(err)
	}
	f.verify()
	for _, path := range []string{podsPath(namespace), objectsPath(namespace)} {
		var left struct{ Items []any }
		if err := c.Request(http.MethodGet, path+"?labelSelector=run.berth/kind=sandbox", nil, &left); err != nil ||
			len(left.Items) > 0 {
			t.Errorf("%s: %d remain, %v", path, len(left.Items), err)
		}
	}
}
