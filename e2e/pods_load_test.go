package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/kubetest"
	"github.com/berth-run/berth/internal/longtest"
)

// TestPodsProof kills one of three servers every five seconds, under a mixed load whose containers are
// Pods on two nodes. Then a node is lost, with the Pods on it. Every response ends, each command runs
// once, every stream is complete on every server, the containers of the lost node say so, and the audit
// records of all servers are complete.
func TestPodsProof(t *testing.T) {
	count, last := 15, 10
	if longtest.Enabled() {
		count, last = 200, 20
	}
	testPodsProof(t, kubetest.Namespace, count, last)
}

// TestPodsAgentProof does so with Pods that agent-sandbox makes.
func TestPodsAgentProof(t *testing.T) {
	kubetest.NeedAgentSandbox(t)
	testPodsProof(t, kubetest.Agents, 15, 10)
}

// testPodsProof does count jobs while servers are killed, and last jobs while a node is lost.
func testPodsProof(t *testing.T, namespace string, count, last int) {
	c := kubetest.Start(t)
	lose := c.AddNode(t)
	f := newPodFleet(t, c, namespace, 3, 0)
	ctx := within(t, 20*time.Minute)
	began, moved := time.Now(), 0
	var mu sync.Mutex
	ended := f.load(ctx, 0, count, 4, func(i int, j job) {
		if container := j.answers[0].container(); j.want > 0 {
			_, moves, err := f.has(ctx, f.url, container)
			if err != nil {
				t.Errorf("job %d: %v", i, err)
			}
			mu.Lock()
			moved += moves
			mu.Unlock()
		}
		if err := f.check(ctx, i, j); err != nil {
			t.Errorf("job %d: %v", i, err)
		}
	})
	kills := 0
	every := time.NewTicker(5 * time.Second)
	defer every.Stop()
	var down *server // for longer than its lease
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-every.C:
			if down != nil {
				down.start()
			}
			down = f.servers[kills%len(f.servers)]
			down.kill()
			kills++
		}
	}
	if down != nil {
		down.start()
	}
	t.Logf("%d jobs in %v, %d kills, %d times a server took a Pod over", count, time.Since(began).Round(time.Second),
		kills, moved)
	if kills > 2 && moved == 0 {
		t.Error("no server took a Pod over")
	}

	interrupted := 0
	ended = f.load(ctx, count, last, last, func(i int, j job) {
		runs, err := j.runs()
		if err == nil && len(runs) < j.want {
			mu.Lock()
			interrupted++
			mu.Unlock()
		}
		if seen := map[int]bool{}; err == nil && j.answers[0].container() == j.answers[len(j.answers)-1].container() {
			for _, n := range runs {
				if seen[n] {
					err = fmt.Errorf("the commands printed %v", runs)
				}
				seen[n] = true
			}
		}
		if err := cmp.Or(err, same(ctx, j, f.servers)); err != nil {
			t.Errorf("job %d, with a lost node: %v", i, err)
		}
	})
	// A container that works on the node, whichever other ones are there.
	stays := f.onNode(ctx, c, namespace, "node2")
	lose()
	select {
	case <-ended:
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
	}
	t.Logf("%d jobs with a lost node, %d with an interrupted command", last, interrupted)
	f.servers[0].waitUntil("the container says that its host was lost", func() bool {
		text, err := get(ctx, f.servers[0].url+"/v1/containers/"+stays)
		return err == nil && strings.Contains(string(text), `"reason":"host"`) && strings.Contains(string(text),
			`"status":"expired"`)
	})
	f.verify()
}

// onNode creates containers until one's Pod runs on a node, and returns that one.
func (f *fleet) onNode(ctx context.Context, c *kubetest.Cluster, namespace, node string) (container string) {
	f.t.Helper()
	for range 20 {
		var made struct{ ID string }
		if err := patiently(ctx, "POST", f.servers[0].url+"/v1/containers", "", map[string]any{"name": "stays"},
			&made); err != nil {
			f.t.Fatal(err)
		}
		f.run(ctx, f.servers[0], made.ID, "echo up", "up\n")
		var all [2]objects // a Sandbox and its Pod have the same name, and the Sandbox has the id
		for i, path := range []string{podsPath(namespace), objectsPath(namespace)} {
			if err := c.Request(http.MethodGet, path+"?labelSelector=run.berth/kind=sandbox", nil,
				&all[i]); err != nil {
				f.t.Fatal(err)
			}
		}
		for _, o := range all[1].Items {
			if !strings.Contains(fmt.Sprint(o.Metadata.Annotations, o.Metadata.Labels), made.ID) {
				continue
			}
			for _, p := range all[0].Items {
				if p.Metadata.Name == o.Metadata.Name && p.Spec.NodeName == node {
					return made.ID
				}
			}
		}
	}
	f.t.Fatalf("no Pod is scheduled to %s", node)
	return ""
}

// objects is a list of Pods or Sandboxes.
type objects struct {
	Items []struct {
		Metadata struct {
			Name                string
			Annotations, Labels map[string]string
		}
		Spec struct{ NodeName string }
	}
}

func podsPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/pods" }

// objectsPath is the path of the objects that the driver creates in a namespace.
func objectsPath(namespace string) string {
	if namespace == kubetest.Agents {
		return "/apis/agents.x-k8s.io/v1beta1/namespaces/" + namespace + "/sandboxes"
	}
	return podsPath(namespace)
}
