package storetest

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Killed runs the calling test again in a process of its own. The process writes to
// the store at where and is killed at a random moment. Everything that it reported as
// saved must exist, and each response must be consistent. Call Killed from a test, not
// from a subtest, and do nothing else in that test.
func Killed(t *testing.T, where string, open func(ctx context.Context, where string) (store.Store, error)) {
	if where := os.Getenv(victimEnv); where != "" {
		s, err := open(context.Background(), where)
		if err != nil {
			t.Fatal(err)
		}
		t.Fatal(victim(s))
	}
	const victims = 3
	saved := map[berth.ResponseID]int64{}
	for range victims {
		watchVictim(t, where, saved)
	}
	s, err := open(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(saved) < victims {
		t.Fatalf("only %d responses were saved; the test would prove nothing", len(saved))
	}
	for id, last := range saved {
		surviving(t, s, id, last)
	}
}

const victimEnv = "BERTH_STORETEST_VICTIM"

// watchVictim records what a victim reports as saved: the last event of each response.
func watchVictim(t *testing.T, where string, saved map[berth.ResponseID]int64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), victimEnv+"="+where, "TMPDIR="+t.TempDir()) // the victim cannot remove its own
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writes, doomed := 0, 50+rand.IntN(500)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var id berth.ResponseID
		var n int64
		if _, err := fmt.Sscanf(lines.Text(), "saved %s %d", &id, &n); err != nil {
			t.Errorf("the victim: %s", lines.Text())
			continue
		}
		saved[id] = n
		if writes++; writes == doomed {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || writes < doomed {
		t.Fatalf("the victim exited after %d writes without being killed: %v", writes, err)
	}
}

// victim writes responses until it is killed. It prints each event that is saved.
func victim(s store.Store) error {
	ctx := context.Background()
	var mu sync.Mutex // one line at a time
	report := func(id berth.ResponseID, n int64) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println("saved", id, n)
	}
	failed := make(chan error)
	for range 4 {
		go func() {
			for {
				r := response("")
				lease := store.Lease{Owner: "me", Until: time.Now().Add(time.Hour)}
				if err := s.CreateResponse(ctx, r, []store.Event{event(0)}, lease); err != nil {
					failed <- err
					return
				}
				report(r.Body.ID, 0)
				for n := int64(1); n <= 20; n++ {
					body := *r.Body
					body.Metadata = map[string]string{"last": fmt.Sprint(n)}
					if err := s.AppendEvents(ctx, mine, r.Body.ID, "me", []store.Event{event(n)}, &body); err != nil {
						failed <- err
						return
					}
					report(r.Body.ID, n)
				}
			}
		}()
	}
	return <-failed
}

// surviving checks a response whose event last was reported as saved. Later ones may
// exist too, if the victim was killed before it could report them.
func surviving(t *testing.T, s store.Store, id berth.ResponseID, last int64) {
	t.Helper()
	events, err := s.Events(t.Context(), mine, id, -1, 1000)
	if err != nil || int64(len(events)) <= last {
		t.Errorf("%s: got %d events, %v; want event %d", id, len(events), err, last)
		return
	}
	for n, ev := range events {
		same(t, "an event", ev, event(int64(n)))
	}
	r, err := s.GetResponse(t.Context(), mine, id)
	if err != nil {
		t.Error(err)
		return
	}
	if got, want := r.Body.Metadata["last"], fmt.Sprint(len(events)-1); got != want && len(events) > 1 {
		t.Errorf("%s: the body is that of event %s, the last event is %s", id, got, want)
	}
}
