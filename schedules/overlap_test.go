package schedules

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

// Times at which no server ran are skipped, or lead to one run.
func TestMissed(t *testing.T) {
	for _, test := range []struct {
		rule string
		runs []string
		next string
	}{
		{MissedSkip, []string{"10:01 skipped No server ran at this time.", "10:30 queued"}, "10:31"},
		{MissedRunOnce, []string{"10:01 queued"}, "10:31"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			h := newHouse(t)
			s := h.every(Change{Missed: &test.rule})
			h.clock.Advance(30*time.Minute + 20*time.Second)
			k := key{"proj_a", s.ID}
			for range 3 {
				if err := h.svc.fire(t.Context(), k); err != nil {
					t.Fatal(err)
				}
			}
			h.want(s.ID, test.runs...)
			got, _ := h.svc.Get(t.Context(), "proj_a", s.ID)
			if next := time.Unix(got.NextRuns[0], 0).UTC().Format("15:04"); next != test.next {
				t.Errorf("got next %s, want %s", next, test.next)
			}
		})
	}
}

// overlapping runs a schedule with a rule until the times 10:01, 10:02 and 10:03 are due, of which the first runs.
// Before each later step, it calls between.
func overlapping(t *testing.T, rule string, between func(*house, *sync.WaitGroup)) (h *house, id berth.ScheduleID,
	works *sync.WaitGroup) {
	h = newHouse(t)
	s := h.every(Change{Overlap: &rule})
	works = &sync.WaitGroup{}
	for i := range 3 {
		if i > 0 && between != nil {
			between(h, works)
		}
		h.clock.Advance(time.Minute)
		if _, err := h.svc.step(t.Context(), works); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			<-h.fake.news
		}
	}
	return h, s.ID, works
}

func TestOverlapSkip(t *testing.T) {
	h, id, works := overlapping(t, OverlapSkip, nil)
	h.want(id, "10:01 in_progress", "10:02 skipped The run before it has not ended.",
		"10:03 skipped The run before it has not ended.")
	h.fake.ends["resp_0_key_me"] <- berth.StatusFailed
	works.Wait()
	if got := h.runs(id)[0]; got != "10:01 failed" {
		t.Errorf("got %s", got)
	}
}

func TestOverlapQueue(t *testing.T) {
	h, id, works := overlapping(t, OverlapQueue, nil)
	h.want(id, "10:01 in_progress", "10:02 queued", "10:03 queued")
	for i := range 3 {
		h.fake.ends[berth.ResponseID(fmt.Sprintf("resp_%d_key_me", i))] <- berth.StatusCompleted
		works.Wait()
		if _, err := h.svc.step(t.Context(), works); err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			<-h.fake.news
		}
	}
	h.want(id, "10:01 completed", "10:02 completed", "10:03 completed")
	for i := range maxQueue + 3 {
		h.clock.Advance(time.Minute)
		if _, err := h.svc.step(t.Context(), works); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			defer works.Wait()
			defer func(end chan<- berth.Status) { end <- berth.StatusCompleted }(h.fake.ends[<-h.fake.news])
		}
	}
	waits := 0
	for _, r := range h.runs(id) {
		if strings.Contains(r, " queued") {
			waits++
		}
	}
	if got := h.runs(id); waits != maxQueue || !strings.HasSuffix(got[len(got)-1], "skipped 10 runs wait already.") {
		t.Errorf("%d wait: %q", waits, got)
	}
}

// The newest run replaces the others, whether the first has ended when the third is due or not.
func TestOverlapReplace(t *testing.T) {
	for _, slow := range []bool{false, true} {
		hold := make(chan struct{})
		step := 0
		h, id, works := overlapping(t, OverlapReplace, func(h *house, works *sync.WaitGroup) {
			switch step++; {
			case slow && step == 1: // before anything is cancelled
				h.fake.hold = hold
			case !slow && step == 2:
				works.Wait()
			}
		})
		if slow {
			close(hold)
			works.Wait()
			if _, err := h.svc.step(t.Context(), works); err != nil {
				t.Fatal(err)
			}
		}
		next := <-h.fake.news
		h.fake.ends[next] <- berth.StatusCompleted
		works.Wait()
		h.want(id, "10:01 cancelled", "10:02 skipped A later run has replaced it.", "10:03 completed")
		if len(h.fake.cancelled) != 1 || h.fake.cancelled[0] != "resp_0_key_me" {
			t.Errorf("slow %v: cancelled %v", slow, h.fake.cancelled)
		}
	}
}
