package e2b

import (
	"math"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/deadline"
	"github.com/berth-run/berth/webhook"
)

// A listedEvent is a berth.SandboxEvent with the names of lists.
type listedEvent struct {
	ID          string                  `json:"id"`
	Version     string                  `json:"version"`
	Type        berth.EventType         `json:"type"`
	Timestamp   string                  `json:"timestamp"`
	Category    string                  `json:"eventCategory"`
	Label       string                  `json:"eventLabel"`
	Data        *berth.SandboxEventData `json:"eventData"`
	SandboxID   string                  `json:"sandboxId"`
	ExecutionID string                  `json:"sandboxExecutionId"`
	TemplateID  string                  `json:"sandboxTemplateId"`
	BuildID     string                  `json:"sandboxBuildId"`
	TeamID      berth.ProjectID         `json:"sandboxTeamId"`
}

// eventQuery reads the parameters of a list of events.
func eventQuery(r *http.Request) (deadline.EventQuery, error) {
	q := exchange.NewQuery(r)
	known := make([]string, len(webhook.SandboxEventTypes))
	for i, t := range webhook.SandboxEventTypes {
		known[i] = string(t)
	}
	query := deadline.EventQuery{Offset: q.Integer("offset", 0, 0, math.MaxInt32),
		Limit: q.Integer("limit", 10, 1, 100), Ascending: q.Boolean("orderAsc", false), Types: q.List("types", known)}
	return query, q.End()
}

// list serves GET /events/sandboxes: the events of all sandboxes of the project, the newest first.
func (h *events) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	query, err := eventQuery(r)
	if err != nil {
		return err
	}
	events, err := h.deadlines.ListEvents(r.Context(), c.Project, query)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, listed(events))
}

// listOfSandbox serves GET /events/sandboxes/{sandbox}: the events of a sandbox, which may have ended, the
// newest first.
func (h *events) listOfSandbox(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	query, err := eventQuery(r)
	if err != nil {
		return err
	}
	events, err := h.deadlines.ListEventsOf(r.Context(), c.Project, sandboxOf(r), query)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, listed(events))
}

// listed returns events with the names of lists.
func listed(events []berth.SandboxEvent) []listedEvent {
	list := make([]listedEvent, len(events))
	for i, e := range events {
		list[i] = listedEvent(e)
	}
	return list
}
