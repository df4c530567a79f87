package e2e

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/longtest"
)

// in returns the task for a container that is named.
func in(container string, task responses.ResponseNewParams) responses.ResponseNewParams {
	task.Tools = []responses.ToolUnionParam{{OfShell: &responses.FunctionShellToolParam{
		Environment: responses.FunctionShellToolEnvironmentUnionParam{OfContainerReference: &responses.ContainerReferenceParam{ContainerID: container}},
	}}}
	return task
}

// after returns the task as what follows on a response.
func after(r *responses.Response, task responses.ResponseNewParams) responses.ResponseNewParams {
	task.PreviousResponseID = openai.String(r.ID)
	return task
}

func (s *server) answer(task responses.ResponseNewParams, opts ...option.RequestOption) (*responses.Response,
	[]string) {
	s.t.Helper()
	c := s.client()
	r, err := c.Responses.New(s.t.Context(), task, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return r, stdouts(r)
}

func containerOf(r *responses.Response) string {
	return r.Tools[0].AsShell().Environment.ContainerID
}

// snapshots returns all that there are.
func (s *server) snapshots() (all []berth.Snapshot) {
	s.t.Helper()
	var page struct{ Data []berth.Snapshot }
	c := s.client()
	if err := c.Get(s.t.Context(), "snapshots?limit=100", nil, &page); err != nil {
		s.t.Fatal(err)
	}
	return page.Data
}

// TestForkedChain: a chain continues in a container that was forked from its own, and in
// its own, and neither knows of the other.
func TestForkedChain(t *testing.T) {
	s := newServer(t)
	one, _ := s.answer(shellTask(fence("echo one >f; export STEP=1")))
	var fork berth.Container
	c := s.client()
	if err := c.Post(t.Context(), "containers/"+containerOf(one)+"/fork", map[string]string{"name": "fork"},
		&fork); err != nil {
		t.Fatal(err)
	}
	_, forked := s.answer(after(one, in(string(fork.ID), shellTask(fence("cat f; echo $STEP; echo fork >>f")))))
	_, own := s.answer(after(one, shellTask(fence("cat f; echo own >>f"))))
	_, again := s.answer(after(one, in(string(fork.ID), shellTask(fence("cat f")))))
	if diff := cmp.Diff([][]string{{"one\n1\n"}, {"one\n"}, {"one\nfork\n"}}, [][]string{forked, own,
		again}); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if left := s.snapshots(); len(left) > 0 {
		t.Errorf("the fork left %+v", left)
	}
}

// TestExpiredChain: a chain whose container has expired continues from the files that it left, also
// when the machine was started anew since. It takes the minute after which a container
// expires at the earliest.
func TestExpiredChain(t *testing.T) {
	longtest.Skip(t)
	s := newHost(t, ", idle: 1m, on_expiry: snapshot")
	one, _ := s.answer(shellTask(fence("echo one >f; export STEP=1; cd /tmp")))
	for end := time.Now().Add(5 * time.Minute); len(s.snapshots()) == 0; time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatal("the container has left no snapshot")
		}
	}
	var was berth.Container
	c := s.client()
	s.waitUntil("the container has ended", func() bool {
		return c.Get(t.Context(), "containers/"+containerOf(one), nil, &was) == nil &&
			was.Status == berth.ContainerExpired
	})
	if was.Berth.LastSnapshot != s.snapshots()[0].ID {
		t.Errorf("got %+v, want the snapshot %s", was.Berth, s.snapshots()[0].ID)
	}
	s.crash() // which takes nothing away that has left its container
	s.bootAnew()
	s.start()
	c = s.client()
	two, out := s.answer(after(one, shellTask(fence("cat /mnt/data/f; echo $STEP $PWD"))))
	if diff := cmp.Diff([]string{"one\n1 /tmp\n"}, out); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if containerOf(two) == containerOf(one) {
		t.Error("it goes on in a container that has expired")
	}
	_, err := c.Responses.New(t.Context(), after(one, in(containerOf(one), shellTask(fence("true")))))
	if e, ok := errors.AsType[*openai.Error](err); !ok || e.Code != "container_expired" || !strings.Contains(e.Message,
		string(was.Berth.LastSnapshot)) {
		t.Errorf("a request that names the container: got %v, want container_expired and where its files are", err)
	}
	if err := c.Delete(t.Context(), "snapshots/"+string(was.Berth.LastSnapshot), nil, nil); err != nil {
		t.Fatal(err)
	}
	_, err = c.Responses.New(t.Context(), after(one, shellTask(fence("cat f"))))
	if e, ok := errors.AsType[*openai.Error](err); !ok || e.Code != "container_expired" || !strings.Contains(e.Message,
		"which is gone too") {
		t.Errorf("a chain whose snapshot is gone: got %v, want container_expired and that it is", err)
	}
}

// TestSnapshotCrash kills the server again and again while snapshots, forks and
// containers from snapshots are being made. What the server lists afterwards is
// whole, and nothing else is left.
func TestSnapshotCrash(t *testing.T) {
	s := newServer(t)
	one, _ := s.answer(shellTask(fence("head -c 3000000 /dev/urandom >f; sha256sum f >sum")))
	source := containerOf(one)
	rounds := 3
	if longtest.Enabled() {
		rounds = 25
	}
	acknowledged := map[berth.SnapshotID]bool{}
	var forks []berth.ContainerID
	for range rounds {
		c := s.client()
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var busy sync.WaitGroup
		for _, memory := range []bool{false, true} {
			busy.Go(func() {
				for ctx.Err() == nil {
					var made berth.Snapshot
					if err := c.Post(ctx, "containers/"+source+"/snapshots", map[string]any{"memory": memory},
						&made); err == nil {
						mu.Lock()
						acknowledged[made.ID] = true
						mu.Unlock()
					}
				}
			})
		}
		busy.Go(func() {
			for ctx.Err() == nil {
				var fork berth.Container
				if err := c.Post(ctx, "containers/"+source+"/fork", nil, &fork); err == nil {
					mu.Lock()
					forks = append(forks, fork.ID)
					mu.Unlock()
				}
			}
		})
		time.Sleep(time.Duration(rand.Int64N(int64(1500 * time.Millisecond)))) // anywhere in their work
		s.kill()
		cancel()
		busy.Wait()
		s.start()
	}
	known := s.snapshots()
	t.Logf("%d snapshots were acknowledged, %d are there", len(acknowledged), len(known))
	for id := range acknowledged {
		if !slices.ContainsFunc(known, func(s berth.Snapshot) bool { return s.ID == id }) && len(known) < 100 {
			t.Errorf("%s was acknowledged, and is gone", id)
		}
	}
	s.whole(source, known[:min(len(known), 4)])
	t.Logf("%d forks were acknowledged", len(forks))
	for _, id := range forks[max(0, len(forks)-4):] {
		s.whole(string(id), nil)
	}
	for known = s.snapshots(); len(known) > 0; known = s.snapshots() { // a page
		args := []string{"snapshot", "rm"}
		for _, kept := range known {
			args = append(args, string(kept.ID))
		}
		if _, stderr, err := s.berth(args...); err != nil && !strings.Contains(stderr, "not found") {
			t.Fatalf("%s: %v", stderr, err)
		}
	}
	s.kill()
	s.start() // which sweeps
	err := filepath.WalkDir(filepath.Join(s.state, "snapshots"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	var ids []string
	list := s.client().Containers.ListAutoPaging(t.Context(), openai.ContainerListParams{})
	for list.Next() {
		if list.Current().Status == "running" {
			ids = append(ids, list.Current().ID)
		}
	}
	boxes, err := os.ReadDir(filepath.Join(s.state, "gvisor/sandboxes"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range boxes {
		if !slices.Contains(ids, b.Name()) {
			t.Errorf("there is a sandbox %s of no container", b.Name())
		}
	}
}

// whole checks that a container has what it had, and that others start with that from
// snapshots of it.
func (s *server) whole(source string, kept []berth.Snapshot) {
	s.t.Helper()
	c := s.client()
	check := func(container string) {
		s.t.Helper()
		if _, out := s.answer(in(container, shellTask(fence("sha256sum -c sum")))); len(out) != 1 ||
			out[0] != "f: OK\n" {
			s.t.Errorf("%s: got %q", container, out)
		}
	}
	check(source)
	for _, k := range kept {
		made, err := c.Containers.New(s.t.Context(), openai.ContainerNewParams{Name: "restored"},
			option.WithJSONSet("berth.snapshot_id", k.ID))
		if err != nil {
			s.t.Errorf("%s: %v", k.ID, err)
			continue
		}
		check(made.ID)
		if err := c.Containers.Delete(s.t.Context(), made.ID); err != nil {
			s.t.Error(err)
		}
	}
}
