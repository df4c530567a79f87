package e2e

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/longtest"
)

// counted is a command that counts its runs in a file of its container, and prints the number.
const counted = `n=$(cat /mnt/data/runs 2>/dev/null || echo 0); echo $((n+1)) >/mnt/data/runs; sleep 0.5; cat /mnt/data/runs`

// A job is one response, or two of a chain, in a container of its own or in none.
type job struct {
	answers []memberAnswer
	want    int // commands
}

// do creates the responses of a job at the proxy and follows them to their end. Every fifth job has no
// container, and every fifth waits for the answer, with an Idempotency-Key.
func (f *fleet) do(ctx context.Context, i int) (j job, err error) {
	steps := []int{0, 1, 3, 2, 1}[i%5]
	req := task(slices.Repeat([]string{counted}, steps)...)
	if steps == 0 {
		req = map[string]any{"model": "scripted", "background": true, "input": strings.Repeat("word ", 200)}
	}
	chain := 1
	if i%5 == 4 {
		chain = 2
	}
	req["background"] = i%5 != 3
	for n := range chain {
		if n > 0 {
			req["previous_response_id"] = j.answers[n-1].ID
		}
		var r memberAnswer
		if err := patiently(ctx, "POST", f.url+"/v1/responses", fmt.Sprintf("job-%d-%d", i, n), req, &r); err != nil {
			return j, fmt.Errorf("create: %w", err)
		}
		if _, err := follow(ctx, f.url, r.ID, nil); err != nil {
			return j, fmt.Errorf("follow: %w", err)
		}
		if err := patiently(ctx, "GET", f.url+"/v1/responses/"+r.ID, "", nil, &r); err != nil {
			return j, fmt.Errorf("read: %w", err)
		}
		j.answers, j.want = append(j.answers, r), j.want+steps
	}
	return j, nil
}

// runs returns what the commands of a job printed: the number of each run in its container.
func (j job) runs() (all []int, err error) {
	for _, r := range j.answers {
		for _, it := range r.Output {
			var parts []struct{ Stdout string }
			if it.Type != "shell_call_output" {
				continue
			}
			if err := json.Unmarshal(it.Output, &parts); err != nil {
				return nil, err
			}
			for _, part := range parts {
				if text := strings.TrimSpace(part.Stdout); text != "" {
					n, err := strconv.Atoi(text)
					if err != nil {
						return nil, err
					}
					all = append(all, n)
				}
			}
		}
	}
	return all, nil
}

// check checks that a job is complete: each command ran once, by the counter in the container, and each
// stream is the same on every server.
func (f *fleet) check(ctx context.Context, i int, j job) error {
	want := []int{}
	for n := range j.want {
		want = append(want, n+1)
	}
	got, err := j.runs()
	if err != nil || !slices.Equal(got, want) {
		return fmt.Errorf("the commands printed %v, %v, want %v", got, err, want)
	}
	if container := j.answers[0].container(); j.want > 0 {
		var out struct{ Stdout string }
		at := f.servers[i%len(f.servers)].url + "/v1/containers/" + container
		if err := patiently(ctx, "POST", at+"/exec", "", map[string]any{"command": "cat /mnt/data/runs"},
			&out); err != nil || out.Stdout != fmt.Sprintln(j.want) {
			return fmt.Errorf("the counter in the container is %q, %v, want %d", out.Stdout, err, j.want)
		}
		// It would need memory until its expiry. An attempt without an answer may have deleted it.
		if err := patiently(ctx, "DELETE", at, "", nil, nil); err != nil && !strings.Contains(err.Error(),
			"404 Not Found") {
			return err
		}
	}
	return same(ctx, j, f.servers)
}

// same checks that the responses of a job are completed, and that each server sends the same stream.
// It reads from all servers concurrently: one after the other it would wait for each of them to return, if
// they are killed in the same order. Padding is random, so it is left out.
func same(ctx context.Context, j job, servers []*server) error {
	for _, r := range j.answers {
		if r.Status != "completed" {
			return fmt.Errorf("%s is %s: %v", r.ID, r.Status, r.Error)
		}
		sums := make([][32]byte, len(servers))
		var g errgroup.Group
		for i, s := range servers {
			g.Go(func() error {
				text, err := get(ctx, s.url+"/v1/responses/"+r.ID+"?stream=true&include_obfuscation=false")
				sums[i] = sha256.Sum256(text)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		if len(slices.Compact(sums)) != 1 {
			return fmt.Errorf("%s: the servers send different streams", r.ID)
		}
	}
	return nil
}

// run runs a command in a container, through a server, and checks what it prints.
func (f *fleet) run(ctx context.Context, s *server, container, command, want string) {
	f.t.Helper()
	var out struct{ Stdout, Stderr string }
	if err := patiently(ctx, "POST", s.url+"/v1/containers/"+container+"/exec", "", map[string]any{"command": command},
		&out); err != nil || out.Stdout != want {
		f.t.Errorf("%s: got %q, %q, %v, want %q", command, out.Stdout, out.Stderr, err, want)
	}
}

// get returns the body at a URL of a server, which may be away for a while.
func get(ctx context.Context, url string) (text []byte, err error) {
	for {
		if text, err = getOnce(ctx, url); err == nil {
			return text, nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

func getOnce(ctx context.Context, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	return text, err
}

// load does jobs at the proxy, several at a time, and calls each with the number and the result. While
// each waits for a server, the next job runs.
func (f *fleet) load(ctx context.Context, from, count, width int, each func(i int, j job)) (ended chan struct{}) {
	ended = make(chan struct{})
	var all sync.WaitGroup
	slots := make(chan struct{}, width)
	for i := from; i < from+count; i++ {
		all.Go(func() {
			slots <- struct{}{}
			j, err := f.do(ctx, i)
			<-slots
			if err != nil {
				f.t.Errorf("job %d: %v", i, err)
				return
			}
			each(i, j)
		})
	}
	go func() {
		all.Wait()
		close(ended)
	}()
	return ended
}

// TestClusterProof kills one of three servers every five seconds, under a mixed load with real
// sandboxes. Then it loses one for good. Every response ends, each command runs once, every stream is
// complete on every server, and the audit records of all servers are complete.
func TestClusterProof(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("gVisor sandboxes need root")
	}
	count, last := 15, 5
	if longtest.Enabled() {
		count, last = 180, 20
	}
	f := newFleetOf(t, "gvisor", "1m")
	ctx := within(t, 20*time.Minute)
	ended := f.load(ctx, 0, count, 6, func(i int, j job) {
		if err := f.check(ctx, i, j); err != nil {
			t.Errorf("job %d: %v", i, err)
		}
	})
	kills := 0
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-time.After(5 * time.Second):
			s := f.servers[kills%len(f.servers)]
			s.kill()
			s.start()
			kills++
		}
	}
	t.Logf("%d jobs, %d kills", count, kills)

	// A server is lost. What it had may be interrupted, but nothing runs twice.
	lost, rest := f.servers[1], []*server{f.servers[0], f.servers[2]}
	var mu sync.Mutex
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
		if err := cmp.Or(err, same(ctx, j, rest)); err != nil {
			t.Errorf("job %d, with a lost server: %v", i, err)
		}
	})
	lost.waitUntil("there is load", func() bool {
		var list struct{ Data []struct{ Status string } }
		_, err := call(ctx, "GET", f.servers[0].url+"/v1/containers?limit=100", "", nil, &list)
		return err == nil && slices.ContainsFunc(list.Data, func(c struct{ Status string }) bool {
			return c.Status == "running"
		})
	})
	lost.kill()
	select {
	case <-ended:
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
	}
	t.Logf("%d jobs without a server, %d with an interrupted command", last, interrupted)
	lost.start() // its sandboxes are removed, or the test would leave them
	f.verify()
}
