package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// A scheduleState is what tests read of a schedule.
type scheduleState struct {
	ID, Status string
	Runs       int
}

// A scheduleRun is what tests read of a run.
type scheduleRun struct {
	ID, Trigger, Status, Reason string
	EndedAt                     *int64 `json:"ended_at"`
}

// scheduled creates a schedule of a command that appends a word to a file, at servers at a URL.
func scheduled(ctx context.Context, t *testing.T, at, word, file string, more map[string]any) (s scheduleState) {
	t.Helper()
	request := task("echo " + word + " >>" + file + "; sleep 0.2")
	body := map[string]any{"name": word, "cron": "* * * * *", "overlap": "queue", "request": request}
	for name, value := range more {
		body[name] = value
	}
	if err := patiently(ctx, "POST", at+"/v1/schedules", "", body, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// runsOf returns the runs of a schedule, once n of them have ended.
func runsOf(ctx context.Context, s *server, id string, n int) (runs []scheduleRun) {
	s.waitUntil(fmt.Sprintf("%d runs have ended", n), func() bool {
		var list struct{ Data []scheduleRun }
		if _, err := call(ctx, "GET", s.url+"/v1/schedules/"+id+"/runs?limit=100", "", nil, &list); err != nil {
			return false
		}
		ended := 0
		for _, r := range list.Data {
			if r.EndedAt != nil {
				ended++
			}
		}
		runs = list.Data
		return ended >= n
	})
	return runs
}

// TestScheduleKilled kills a server while schedules run. Each time leads to one response, whose command runs once.
func TestScheduleKilled(t *testing.T) {
	s := newServer(t)
	ctx := within(t, 4*time.Minute)
	var box struct{ ID string }
	if _, err := call(ctx, "POST", s.url+"/v1/containers", "", map[string]any{"name": "box"}, &box); err != nil {
		t.Fatal(err)
	}
	in := func(more map[string]any) map[string]any { more["container"] = "box"; return more }
	timed := scheduled(ctx, t, s.url, "timed", "/mnt/data/ran", in(map[string]any{"limits": map[string]any{"runs": 1}}))
	byHand := scheduled(ctx, t, s.url, "hand", "/mnt/data/ran", in(map[string]any{"status": "paused"}))
	const runs = 8
	for i := range runs {
		if err := patiently(ctx, "POST", s.url+"/v1/schedules/"+byHand.ID+"/run", fmt.Sprint("run-", i),
			map[string]any{}, nil); err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 { // while a run starts, runs or waits
			s.kill()
			s.start()
		}
	}
	for range 3 {
		runsOf(ctx, s, byHand.ID, 1)
		s.kill()
		s.start()
	}
	for _, r := range runsOf(ctx, s, byHand.ID, runs) {
		if r.Status != "completed" {
			t.Errorf("got %+v", r)
		}
	}
	runsOf(ctx, s, timed.ID, 1)
	s.kill()
	s.start()
	var got scheduleState
	if _, err := call(ctx, "GET", s.url+"/v1/schedules/"+timed.ID, "", nil, &got); err != nil || got.Status != "ended" ||
		got.Runs != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	var out struct{ Stdout string }
	if _, err := call(ctx, "POST", s.url+"/v1/containers/"+box.ID+"/exec", "",
		map[string]any{"command": "sort /mnt/data/ran | uniq -c | tr -s ' '"}, &out); err != nil ||
		out.Stdout != fmt.Sprintf(" %d hand\n 1 timed\n", runs) {
		t.Errorf("the commands ran %q, %v", out.Stdout, err)
	}
}

// TestClusterSchedules kills the servers of a cluster in turn while schedules run. Each run runs on one server, once.
func TestClusterSchedules(t *testing.T) {
	f := newFleet(t, "10s")
	ctx := within(t, 4*time.Minute)
	timed := scheduled(ctx, t, f.servers[0].url, "timed", f.counter, map[string]any{"limits": map[string]any{"runs": 1}})
	var byHand []scheduleState
	for i, s := range f.servers {
		byHand = append(byHand, scheduled(ctx, t, s.url, fmt.Sprint("hand", i), f.counter,
			map[string]any{"status": "paused"}))
	}
	for round := range 3 {
		for i, schedule := range byHand {
			at := f.servers[(i+round)%3].url + "/v1/schedules/" + schedule.ID + "/run"
			if err := patiently(ctx, "POST", at, fmt.Sprintf("%d-%d", i, round), map[string]any{}, nil); err != nil {
				t.Fatal(err)
			}
		}
		f.servers[round].kill()
		f.servers[round].start()
	}
	for i, schedule := range byHand {
		for _, r := range runsOf(ctx, f.servers[i], schedule.ID, 3) {
			if r.Status != "completed" && r.Status != "failed" { // a container that is lost fails its response
				t.Errorf("got %+v", r)
			}
		}
	}
	runsOf(ctx, f.servers[1], timed.ID, 1)
	for word, n := range f.lines() {
		most := 3
		if word == "timed" {
			most = 1
		}
		if n > most {
			t.Errorf("%s ran %d times, want at most %d", word, n, most)
		}
	}
	var got scheduleState
	if status, err := call(ctx, "GET", f.servers[2].url+"/v1/schedules/"+timed.ID, "", nil, &got); status !=
		http.StatusOK || err != nil || got.Runs != 1 || got.Status != "ended" {
		t.Errorf("got %+v, %v", got, err)
	}
}
