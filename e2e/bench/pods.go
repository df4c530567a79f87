package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-run/berth/internal/kubetest"
)

// maxPods is the greatest number of containers as Pods that are measured of each kind: each takes
// seconds to start and to end.
const maxPods = 20

// podResults are the times of one kind of Pods, in milliseconds.
type podResults struct {
	Kind         string
	Cold, Pooled []float64
	Errors       []string
}

// podBench measures containers as Pods, for the subject scale.
type podBench struct{ *bench }

// measure measures from the request for a container to the end of its first command, with the
// driver kubernetes. The cluster needs namespaces of its own, so another process of this program
// measures there (run).
func (b podBench) measure(ctx context.Context) error {
	t := &table{title: "Create → first command, as a Pod"}
	defer b.show(t)
	program := os.Getenv(kubetest.ProgramEnv)
	if program == "" {
		t.note("Skipped: %s names no program of a cluster. scripts/test-cluster builds it as bin/cluster.",
			kubetest.ProgramEnv)
		return nil
	}
	state, err := os.MkdirTemp(b.state, "pods-")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-pods", state, "-bin", b.bin, "-images", b.images, "-n",
		strconv.Itoa(min(b.n, maxPods)))
	for _, name := range []string{kubetest.ProgramEnv, kubetest.AgentSandboxEnv} {
		if path := os.Getenv(name); path != "" {
			if path, err = filepath.Abs(path); err != nil { // the components run in directories of their own
				return err
			}
			cmd.Env = append(cmd.Env, name+"="+path)
		}
	}
	var out bytes.Buffer
	cmd.Env = append(os.Environ(), cmd.Env...)
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	runtime.LockOSThread() // Pdeathsig refers to the thread that starts the process
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("measure in a cluster: %w", err)
	}
	var all []podResults
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		return fmt.Errorf("read the results of a cluster: %w", err)
	}
	for _, r := range all {
		cold, pooled := series{values: r.Cold, tried: len(r.Cold)}, series{values: r.Pooled, tried: len(r.Pooled)}
		for _, text := range r.Errors {
			cold.add(0, errors.New(text))
		}
		t.add(row{what: r.Kind + ", cold", unit: "ms", series: cold})
		t.add(row{what: r.Kind + ", from the pool", unit: "ms", series: pooled, beside: "cold",
			other: series{values: r.Cold}})
	}
	t.note("API server, controllers, kubelet, containerd, PostgreSQL, bucket and server share the machine. The node has the template's image.")
	return nil
}

// run starts a cluster, measures there, and prints the results. It ends the process.
func (b podBench) run(state string) {
	b.state = state
	kubetest.Run(func() int {
		all, err := b.inCluster(context.Background()) // the parent kills the namespaces when it is interrupted
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(all)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench: Pods:", err)
			return 1
		}
		return 0
	})
}

// inCluster measures in the cluster's namespaces.
func (b podBench) inCluster(ctx context.Context) (all []podResults, err error) {
	c, err := kubetest.Open()
	if err != nil {
		return nil, err
	}
	kinds := []struct{ name, namespace string }{{"Pod", kubetest.Namespace}}
	if os.Getenv(kubetest.AgentSandboxEnv) != "" {
		kinds = append(kinds, struct{ name, namespace string }{"Sandbox of agent-sandbox", kubetest.Agents})
	}
	database, at, err := b.startPostgres(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, database.stop()) }()
	bucket, blobs, err := b.startBucket(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bucket.stop()) }()
	for _, kind := range kinds {
		shared := fmt.Sprintf("store: %s\nblobs: %s\ndriver: kubernetes\n", at, blobs) +
			fmt.Sprintf(
				"kubernetes: {kubeconfig: %q, namespace: %s, registry: %s, cpu_request: 0.01, memory_request: 0.1}\n",
				c.Kubeconfig, kind.namespace, kubetest.Registry)
		r := podResults{Kind: kind.name}
		cold, err := b.cold(ctx, shared+noPool)
		if err != nil {
			return nil, fmt.Errorf("%s, cold: %w", kind.name, err)
		}
		pooled, err := b.pooled(ctx, shared+onePool)
		if err != nil {
			return nil, fmt.Errorf("%s, from the pool: %w", kind.name, err)
		}
		r.Cold, r.Pooled = cold.values, pooled.values
		for _, err := range append(cold.errs, pooled.errs...) {
			r.Errors = append(r.Errors, err.Error())
		}
		all = append(all, r)
	}
	return all, nil
}

// serve starts the only server of a cluster of servers.
func (b podBench) serve(ctx context.Context, config string) (*server, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	s, err := b.newServer(fmt.Sprintf("%scluster: {listen: %q}\n", config, ports[0]), "")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(s.state, "seal.key"), []byte(strings.Repeat("5e", 32)+"\n"),
		0o600); err != nil {
		return nil, err
	}
	return s, s.start(ctx)
}

// cold measures Pods that are made when they are asked for. The first one is not counted: it
// pushes the template and makes the node pull it.
func (b podBench) cold(ctx context.Context, config string) (all series, err error) {
	s, err := b.serve(ctx, config)
	if err != nil {
		return all, err
	}
	defer stopped(s, &err)
	for i := range b.n + 1 {
		var id string
		took, failed := timed(func() (err error) { id, err = s.first(ctx, nil); return err })
		if i > 0 {
			all.took(took, failed)
		} else if failed != nil {
			return all, failed
		}
		if id != "" {
			if err := s.delete(ctx, id); err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

// pooled measures Pods that wait for a container.
func (b podBench) pooled(ctx context.Context, config string) (all series, err error) {
	s, err := b.serve(ctx, config)
	if err != nil {
		return all, err
	}
	defer stopped(s, &err)
	return s.firstPooled(ctx, b.n, 5*time.Minute)
}
