package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

// endedRun waits for the end of a schedule's newest run.
func (h *house) endedRun(schedule string) object {
	h.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		run := object(h.call(200, "GET", "/v1/schedules/"+schedule+"/runs", nil).at("data", 0).(map[string]any))
		if run["ended_at"] != nil {
			return run
		}
		select {
		case <-tick.C:
		case <-h.t.Context().Done():
			h.t.Fatalf("the run has not ended: %v", run)
		}
	}
}

// A schedule runs its request as the key that made it, in the container with a name.
func TestSchedule(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-mine", "proj_mine")
	box := h.call(200, "POST", "/v1/containers", `{"name":"box"}`).id()
	s := h.call(200, "POST", "/v1/schedules", `{"name":"nightly","cron":"30 2 * * *","time_zone":"Europe/Berlin",
		"container":"box","metadata":{"a":"b"},"request":{"model":"scripted","input":"`+"```sh\\ntrue\\n```"+`",
		"stream_options":null,"tools":[{"type":"shell","environment":{"type":"container_auto"}}]}}`)
	if s.at("object") != "schedule" || s.at("status") != "active" || s.at("overlap") != "skip" || s.at("missed") !=
		"skip" || s.at("last_run") != nil || len(s.at("next_runs").([]any)) != 3 || s.at("request", "background") != true {
		t.Errorf("got %v", s)
	}
	run := h.call(200, "POST", "/v1/schedules/"+s.id()+"/run", `{}`)
	if run.at("status") != "queued" || run.at("trigger") != "manual" || run.at("schedule_id") != s.id() {
		t.Errorf("got %v", run)
	}
	ended := h.endedRun(s.id())
	if ended.at("id") != run.id() || ended.at("status") != "completed" {
		t.Fatalf("got %v", ended)
	}
	r := h.call(200, "GET", "/v1/responses/"+ended.at("response_id").(string), nil)
	if r.at("background") != true || r.at("output", 0, "type") != "shell_call" || r.at("output", 0, "environment",
		"container_id") != box {
		t.Errorf("got %v", r)
	}
	s = h.call(200, "GET", "/v1/schedules/"+s.id(), nil)
	if s.at("runs") != 1.0 || s.at("last_run", "id") != run.id() || s.at("last_run", "status") != "completed" {
		t.Errorf("got %v", s)
	}
	if s = h.call(200, "POST", "/v1/schedules/"+s.id(), `{"status":"paused"}`); s.at("status") != "paused" ||
		len(s.at("next_runs").([]any)) != 0 {
		t.Errorf("got %v", s)
	}
	h.call(200, "DELETE", "/v1/containers/"+box, nil)
	h.call(200, "POST", "/v1/schedules/"+s.id()+"/run", `{}`)
	if ended := h.endedRun(s.id()); ended.at("status") != "failed" || ended.at("reason") != "No container 'box' runs." {
		t.Errorf("got %v", ended)
	}
	if got := h.call(200, "GET", "/v1/schedules", nil); len(got.at("data").([]any)) != 1 {
		t.Errorf("got %v", got)
	}
	h.call(200, "DELETE", "/v1/schedules/"+s.id(), nil)
	h.call(404, "GET", "/v1/schedules/"+s.id(), nil)
	h.call(404, "GET", "/v1/schedules/"+s.id()+"/runs", nil)
}

func TestScheduleBadInput(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-mine", "proj_mine")
	const ok = `"request":{"model":"scripted","input":"x"}`
	for body, param := range map[string]string{
		`{"cron":"@daily"}`: "request",
		`{` + ok + `}`:      "cron",
		`{"cron":"@daily","interval_seconds":60,` + ok + `}`:                                              "cron",
		`{"cron":"* * * * * *",` + ok + `}`:                                                               "cron",
		`{"cron":"0 0 30 2 *",` + ok + `}`:                                                                "cron",
		`{"cron":"@every 1s",` + ok + `}`:                                                                 "cron",
		`{"interval_seconds":1,` + ok + `}`:                                                               "interval_seconds",
		`{"cron":"@daily","time_zone":"Local",` + ok + `}`:                                                "time_zone",
		`{"cron":"@daily","missed":"all",` + ok + `}`:                                                     "missed",
		`{"cron":"@daily","overlap":"both",` + ok + `}`:                                                   "overlap",
		`{"cron":"@daily","status":"stopped",` + ok + `}`:                                                 "status",
		`{"cron":"@daily","limits":{"runs":0},` + ok + `}`:                                                "limits.runs",
		`{"cron":"@daily","ends_at":1,` + ok + `}`:                                                        "ends_at",
		`{"cron":"@daily","request":{"model":"scripted","x":1}}`:                                          "request.x",
		`{"cron":"@daily","request":{"input":"x"}}`:                                                       "request.model",
		`{"cron":"@daily","request":"x"}`:                                                                 "request",
		`{"cron":"@daily","request":{"model":"scripted","input":"x","stream":true}}`:                      "request.stream",
		`{"cron":"@daily","request":{"model":"scripted","input":"x","store":false}}`:                      "request.store",
		`{"cron":"@daily","request":{"model":"scripted","input":"` + strings.Repeat("x", 256<<10) + `"}}`: "request",
	} {
		if got := h.call(400, "POST", "/v1/schedules", body); got.at("error", "param") != param {
			t.Errorf("%.100s: got %v, want the parameter %s", body, got, param)
		}
	}
}

// A schedule gives nobody rights: it acts as the key that says what it does, and stops when that may not do it.
func TestScheduleRights(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	manager := h.roleKey("proj_mine", berth.RoleMaintainer, berth.KeyScope{})
	runner := h.roleKey("proj_mine", berth.RoleRunner, berth.KeyScope{})
	scoped := h.roleKey("proj_mine", berth.RoleRunner, berth.KeyScope{Routes: []string{"POST /v1/schedules*", "GET *"}})
	tools := h.roleKey("proj_mine", berth.RoleMaintainer, berth.KeyScope{Tools: []string{"function"}})
	foreign := h.roleKey("proj_other", berth.RoleMaintainer, berth.KeyScope{})
	h.token = foreign
	box := h.call(200, "POST", "/v1/containers", `{"name":"box"}`).id()
	shell := func(id string) string {
		return `{"cron":"@daily","request":{"model":"scripted","input":"` + "```sh\\ntrue\\n```" +
			`","tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"` + id + `"}}]}}`
	}
	h.token = scoped
	h.call(403, "POST", "/v1/schedules", shell(box)) // it may not create a response itself
	h.token = tools
	h.call(403, "POST", "/v1/schedules", shell(box)) // it may not use this tool itself
	h.token = runner
	other := h.call(200, "POST", "/v1/schedules", shell(box)).id()
	h.call(200, "POST", "/v1/schedules/"+other+"/run", `{}`)
	if got := h.endedRun(other); got.at("status") != "failed" {
		t.Errorf("a schedule uses the container of another project: %v", got)
	}
	named := h.call(200, "POST", "/v1/schedules", strings.Replace(shell(box), `{"cron"`, `{"container":"box","cron"`, 1)).id()
	h.call(200, "POST", "/v1/schedules/"+named+"/run", `{}`)
	if got := h.endedRun(named); got.at("reason") != "No container 'box' runs." {
		t.Errorf("a schedule finds the container of another project by name: %v", got)
	}
	h.token = manager
	made := h.call(200, "POST", "/v1/schedules", `{"cron":"@daily","request":{"model":"scripted","input":"x"}}`).id()
	h.token = runner
	h.call(403, "POST", "/v1/schedules/"+made, `{"name":"x"}`)
	h.call(403, "POST", "/v1/schedules/"+made+"/run", `{}`)
	h.call(403, "DELETE", "/v1/schedules/"+made, nil)
	key := h.call(200, "GET", "/v1/schedules/"+other, nil).at("api_key_id").(string)
	check(t, h.store.DeleteKey(t.Context(), berth.KeyID(key)))
	h.token = manager
	h.call(200, "POST", "/v1/schedules/"+named+"/run", `{}`) // fails before the key is needed
	h.endedRun(named)
	h.call(200, "POST", "/v1/schedules/"+other+"/run", `{}`)
	ended := h.endedRun(other)
	s := h.call(200, "GET", "/v1/schedules/"+other, nil)
	if ended.at("status") != "failed" || s.at("status") != "stopped" ||
		!strings.Contains(s.at("status_reason").(string), "was deleted") {
		t.Errorf("got %v, %v", ended, s)
	}
	h.call(409, "POST", "/v1/schedules/"+other+"/run", `{}`)
	if s = h.call(200, "POST", "/v1/schedules/"+other, `{"status":"active"}`); s.at("api_key_id") == key {
		t.Errorf("it still acts as the deleted key: %v", s)
	}
}
