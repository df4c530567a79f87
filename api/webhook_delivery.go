package api

import (
	"encoding/json"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/webhook"
)

// A webhookDelivery is an event for an endpoint with the attempts to deliver it.
type webhookDelivery struct {
	ID            string            `json:"id"`     // the webhook-id of every attempt
	Object        string            `json:"object"` // "webhook_endpoint.delivery"
	CreatedAt     int64             `json:"created_at"`
	EventType     berth.EventType   `json:"event_type"`
	Status        webhook.Status    `json:"status"`          // pending, delivered or failed
	NextAttemptAt *int64            `json:"next_attempt_at"` // null unless it is pending
	Attempts      []webhook.Attempt `json:"attempts"`
	Payload       json.RawMessage   `json:"payload"` // the event
}

func deliveryOf(d *webhook.Delivery) *webhookDelivery {
	w := &webhookDelivery{ID: d.ID, Object: "webhook_endpoint.delivery", CreatedAt: d.CreatedAt, EventType: d.Type,
		Status: d.Status, Attempts: d.Attempts, Payload: d.Payload}
	if d.Status == webhook.Pending {
		w.NextAttemptAt = &d.DueAt
	}
	if w.Attempts == nil {
		w.Attempts = []webhook.Attempt{}
	}
	return w
}

// listDeliveries serves GET /v1/webhook_endpoints/{webhook}/deliveries, the newest first. A
// finished delivery is listed for a week.
func (h *webhooks) listDeliveries(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	found, more, err := h.service.Log(r.Context(), c.Project, webhookID(r), page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	data := make([]*webhookDelivery, len(found))
	for i, d := range found {
		data[i] = deliveryOf(d)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, func(d *webhookDelivery) string { return d.ID }))
}

// redeliver serves POST /v1/webhook_endpoints/{webhook}/deliveries/{delivery}/redeliver.
func (h *webhooks) redeliver(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if err := x.DiscardBody(r); err != nil {
		return err
	}
	d, err := h.service.Redeliver(r.Context(), c.Project, webhookID(r), rule.Clip(r.PathValue("delivery")))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, deliveryOf(d))
}
