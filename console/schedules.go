package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/berth-run/berth/schedules"
)

// A schedulesPage is the list of schedules.
type schedulesPage struct {
	rows[schedules.Schedule]
	Models []string
	Draft  scheduleDraft
}

// A scheduleDraft is what the user has entered into the form of a schedule.
type scheduleDraft struct {
	Name, Cron, Zone, Model, Prompt string
	Shell                           bool
	Error                           string
}

// show serves GET /console/schedules.
func (p *schedulesPage) show(v *visit) error {
	return p.answer(v, http.StatusOK, scheduleDraft{Cron: "0 9 * * 1-5", Zone: "UTC"})
}

// answer shows the list with a draft.
func (p *schedulesPage) answer(v *visit, status int, draft scheduleDraft) error {
	if err := p.read(v, "/v1/schedules", mostRows); err != nil {
		return err
	}
	models, err := modelsOf(v)
	if err != nil {
		return err
	}
	p.Models, p.Draft = models, draft
	return v.show(status, "schedules", "Schedules", p)
}

// create serves POST /console/schedules.
func (p *schedulesPage) create(v *visit) error {
	of := func(name string) string { return strings.TrimSpace(v.form.fields.Get(name)) }
	draft := scheduleDraft{Name: of("name"), Cron: of("cron"), Zone: of("zone"), Model: of("model"),
		Prompt: v.text("prompt"), Shell: of("shell") != ""}
	request := map[string]any{"model": draft.Model, "input": draft.Prompt}
	if draft.Shell {
		request["tools"] = []any{map[string]any{"type": "shell",
			"environment": map[string]any{"type": "container_auto"}}}
	}
	body := map[string]any{"cron": draft.Cron, "time_zone": draft.Zone, "request": request}
	if draft.Name != "" {
		body["name"] = draft.Name
	}
	var made schedules.Schedule
	err := v.post("/v1/schedules", body, &made)
	if f, ok := errors.AsType[*failure](err); ok && f.Status == http.StatusBadRequest {
		draft.Error = f.Message
		return p.answer(v, http.StatusBadRequest, draft)
	}
	if err != nil {
		return err
	}
	return v.redirect(pathTo("/console/schedules", made.ID))
}

// A schedulePage is the page of a schedule.
type schedulePage struct {
	schedules.Schedule
	History []schedules.Run
	Form    formToken
	Text    string // of the request, as JSON
}

// Path returns the path of the page.
func (p schedulePage) Path() string { return pathTo("/console/schedules", p.ID) }

// When returns when the schedule is due.
func (p schedulePage) When() string {
	if p.Cron != "" {
		return p.Cron + " (" + p.TimeZone + ")"
	}
	return "every " + (time.Duration(p.IntervalSeconds) * time.Second).String()
}

// Running reports whether a run has not ended.
func (p schedulePage) Running() bool { return len(p.History) > 0 && p.History[0].EndedAt == nil }

// Over reports whether the schedule makes no further runs.
func (p schedulePage) Over() bool {
	return p.Status == schedules.Stopped || p.Status == schedules.Ended
}

// show serves GET /console/schedules/{schedule}.
func (p *schedulePage) show(v *visit) error {
	from := pathTo("/v1/schedules", v.r.PathValue("schedule"))
	if err := v.get(from, &p.Schedule); err != nil {
		return err
	}
	var runs list[schedules.Run]
	if err := v.get(from+"/runs?order=desc&limit=50", &runs); err != nil {
		return err
	}
	text, err := json.MarshalIndent(p.Request, "", "  ")
	if err != nil {
		return err
	}
	p.History, p.Form, p.Text = runs.Data, v.formToken(), string(text)
	return v.show(http.StatusOK, "schedule", p.Name, p)
}

// change serves POST /console/schedules/{schedule}: it runs, pauses, resumes or deletes the schedule.
func (*schedulePage) change(v *visit) error {
	id := v.r.PathValue("schedule")
	to, page := pathTo("/v1/schedules", id), pathTo("/console/schedules", id)
	var err error
	switch v.form.fields.Get("do") {
	case "run":
		err = v.post(to+"/run", struct{}{}, &struct{}{})
	case "pause":
		err = v.post(to, map[string]any{"status": schedules.Paused}, &struct{}{})
	case "resume":
		err = v.post(to, map[string]any{"status": schedules.Active}, &struct{}{})
	case "delete":
		err, page = v.delete(to), "/console/schedules"
	default:
		err = &failure{http.StatusBadRequest, "The form is incomplete."}
	}
	if err != nil {
		return err
	}
	return v.redirect(page)
}
