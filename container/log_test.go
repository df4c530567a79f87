package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// logged returns a container's log when it has n entries, oldest first.
func (h *harness) logged(id berth.ContainerID, n int) []*berth.ContainerLog {
	h.t.Helper()
	seen := 0
	for _, err := range h.k.logs.Follow(h.t.Context(), mine, id, -1) {
		if err != nil {
			h.t.Fatal(err)
		}
		if seen++; seen == n {
			break
		}
	}
	logs, _, err := h.k.logs.List(h.t.Context(), mine, id, store.Page{Limit: 5000, Ascending: true})
	if err != nil || len(logs) != n {
		h.t.Fatalf("got %d entries, %v, want %d: %+v", len(logs), err, n, logs)
	}
	return logs
}

func outcome(l *berth.ContainerLog) string {
	if l.Outcome.ExitCode != nil {
		return fmt.Sprint(l.Outcome.Type, " ", *l.Outcome.ExitCode)
	}
	return l.Outcome.Type
}

// A command whose caller disconnects is logged with its real outcome when it ends.
func TestLogOfACallThatIsLeft(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	r := h.run(id)
	r.stop()
	<-r.done
	if err := h.k.access.Shell(byMe, id).Cancel(t.Context(), r.callID); err != nil {
		t.Fatal(err)
	}
	l := h.logged(id, 1)[0]
	if outcome(l) != "exit 137" || l.Stdout.Text != "go\n" || l.Command != untilReleased {
		t.Errorf("got %+v, want the killed command", l)
	}
}

// A command that ran when the server died is logged once: by the response that resumes it, or
// with the outcome that is known.
func TestLogAfterACrash(t *testing.T) {
	h := newHarness(t)
	taken, dead := h.ready(), h.ready()
	r := h.run(taken)
	h.run(dead)
	s := h.k.index.lookup(mine, taken)
	h.k.logs.start(t.Context(), s, []berth.ContainerLog{{ID: "clog_exec", Source: berth.LogExec, Command: "sleep 300"}})
	h.crash()
	if err := h.driver.Destroy(t.Context(), string(dead)); err != nil {
		t.Fatal(err)
	}
	h.start()
	if l := h.logged(dead, 1)[0]; outcome(l) != "unknown" || l.Command != untilReleased {
		t.Errorf("in a dead sandbox: got %+v, want an unknown end", l)
	}
	if l := h.logged(taken, 1)[0]; outcome(l) != "unknown" || l.ID != "clog_exec" {
		t.Errorf("a process without a listener: got %+v, want an unknown end", l)
	}
	os.Remove(filepath.Join(h.work(taken), "held"))
	if _, err := h.trySh(t.Context(), taken, r.callID, untilReleased); err != nil {
		t.Fatal(err)
	}
	if l := h.logged(taken, 2)[1]; outcome(l) != "exit 0" || l.Stdout.Text != "go\nend\n" || l.SequenceNumber != 1 {
		t.Errorf("a resumed call: got %+v, want all output", l)
	}
	h.crash()
	h.start()
	h.logged(taken, 2)
}

// A call that no response resumes is ended at the start after a crash, and logged with its real outcome. One of a
// response in the same container continues.
func TestAbandonedAfterACrash(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	gone := h.runFor(berth.Caller{Project: mine, Key: "key_test"}, id)
	resumed := h.run(id)
	h.crash()
	h.start()
	if l := h.logged(id, 1)[0]; outcome(l) != "exit 137" || l.CallID != gone.callID || l.KeyID != "key_test" {
		t.Errorf("got %+v, want the killed command", l)
	}
	if err := os.Remove(filepath.Join(h.work(id), "held")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.trySh(t.Context(), id, resumed.callID, untilReleased); err != nil {
		t.Fatal(err)
	}
	if l := h.logged(id, 2)[1]; outcome(l) != "exit 0" || l.CallID != resumed.callID {
		t.Errorf("got %+v, want the end of the resumed command", l)
	}
}

// A command that ends with its container is logged.
func TestLogOfADeath(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	h.sh(id, "true")
	h.run(id)
	var got []*berth.ContainerLog
	done, begun := make(chan error, 1), make(chan struct{}, 2)
	go func() {
		var err error
		var l *berth.ContainerLog
		for l, err = range h.k.logs.Follow(t.Context(), mine, id, -1) {
			if err == nil {
				got = append(got, l)
				begun <- struct{}{}
			}
		}
		done <- err
	}()
	<-begun
	h.k.deaths.end(h.k.index.lookup(mine, id), reasonKilled, goneError(h.get(id), reasonKilled), nil, nil)
	if err := <-done; err != nil || len(got) != 2 || outcome(got[1]) != "unknown" {
		t.Errorf("followers got %+v, %v, want the command with an unknown end", got, err)
	}
	h.logged(id, 2)
	if err := h.k.Delete(t.Context(), mine, id); err != nil {
		t.Fatal(err)
	}
	objects, _, err := h.store.ListObjects(t.Context(), mine, kindLog, string(id), store.Page{Limit: 10})
	if err != nil || len(objects) != 0 {
		t.Errorf("got %d log entries of a deleted container, %v", len(objects), err)
	}
	if err := h.k.logs.save(t.Context(), h.k.leases.newInstance(mine, &berth.Container{ID: id}),
		berth.ContainerLog{ID: "clog_late"}); err != nil {
		t.Errorf("a late entry: got %v, want it dropped", err)
	}
}

// The number of entries in a log is bounded.
func TestLogIsBounded(t *testing.T) {
	h := newHarness(t)
	id := h.ready()
	s := h.k.index.lookup(mine, id)
	for i := range maxLogs + 3*logSlack {
		if err := h.k.logs.save(t.Context(), s,
			berth.ContainerLog{ID: berth.LogID(fmt.Sprintf("clog_%d", i))}); err != nil {
			t.Fatal(err)
		}
	}
	logs, _, err := h.k.logs.List(t.Context(), mine, id, store.Page{Limit: 5000, Ascending: true})
	if n := len(logs); err != nil || n > maxLogs+logSlack || n < maxLogs ||
		logs[n-1].SequenceNumber != maxLogs+3*logSlack-1 {
		t.Errorf("got %d entries, %v, want the last %d or a few more", n, err, maxLogs)
	}
}

func TestExcerpt(t *testing.T) {
	for _, size := range []int{0, 1, half, half + 1, 2 * half, 2*half + 1, 10 * half} {
		text := strings.Repeat("0123456789", size/10+1)[:size]
		for _, piece := range []int{1, 7, half, 100_000} {
			var x excerpt
			for rest := text; rest != ""; rest = rest[min(piece, len(rest)):] {
				x.write([]byte(rest[:min(piece, len(rest))]), 0)
			}
			want := text
			if size > 2*half {
				want = text[:half] + leftOut(int64(size-2*half)) + text[size-half:]
			}
			if got := x.text(); got.Text != want || got.Bytes != int64(size) {
				t.Errorf("%d bytes by %d: got %d of %d, want %d", size, piece, len(got.Text), got.Bytes, len(want))
			}
		}
	}
	var x excerpt
	x.write([]byte("a\xff"), 0)
	x.write([]byte("b"), 10)
	if got := x.text(); got.Text != "a\uFFFD"+leftOut(10)+"b" || got.Bytes != 13 {
		t.Errorf("got %q of %d", got.Text, got.Bytes)
	}
}
