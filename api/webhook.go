package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/webhook"
)

// webhooks serves webhook endpoints.
type webhooks struct{ service *webhook.Service }

var (
	webhookFields = rule.Fields{"name": rule.Text(1, 256), "url": rule.Text(1, 2048),
		"event_types": rule.List(rule.AnyText, 100)}
	createWebhook   = rule.Object(webhookFields, "name", "url", "event_types")
	updateWebhook   = rule.Object(webhookFields)
	rotateWebhook   = rule.Object(rule.Fields{"keep_old_secret_active_for_24_hours": rule.Boolean})
	testWebhookBody = rule.Object(rule.Fields{"event_type": rule.Text(1, 256)}, "event_type")
)

// create serves POST /v1/webhook_endpoints.
func (h *webhooks) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req webhook.EndpointRequest
	if err := x.Decode(r, createWebhook, &req); err != nil {
		return err
	}
	e, err := h.service.Create(r.Context(), c.Project, req)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, e)
}

// list serves GET /v1/webhook_endpoints, the newest first.
func (h *webhooks) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.List(x, r, c, h.service.List, func(e *berth.WebhookEndpoint) string { return string(e.ID) })
}

// webhookID returns the endpoint id of the request's path.
func webhookID(r *http.Request) berth.WebhookID { return berth.WebhookID(r.PathValue("webhook")) }

// get serves GET /v1/webhook_endpoints/{webhook}.
func (h *webhooks) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, h.service.Get, webhookID(r))
}

// update serves POST /v1/webhook_endpoints/{webhook}.
func (h *webhooks) update(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req webhook.EndpointRequest
	if err := x.DecodeOptional(r, updateWebhook, &req); err != nil {
		return err
	}
	e, err := h.service.Update(r.Context(), c.Project, webhookID(r), req)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, e)
}

// delete serves DELETE /v1/webhook_endpoints/{webhook}.
func (h *webhooks) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Delete(x, r, c, h.service.Delete, webhookID(r), "webhook_endpoint.deleted")
}

type rotateRequest struct {
	Keep bool `json:"keep_old_secret_active_for_24_hours"`
}

// rotateSecret serves POST /v1/webhook_endpoints/{webhook}/rotate_secret.
func (h *webhooks) rotateSecret(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req rotateRequest
	if err := x.DecodeOptional(r, rotateWebhook, &req); err != nil {
		return err
	}
	e, err := h.service.RotateSecret(r.Context(), c.Project, webhookID(r), req.Keep)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, e)
}

// test serves POST /v1/webhook_endpoints/{webhook}/test. It sends a sample event once.
func (h *webhooks) test(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req testWebhookRequest
	if err := x.Decode(r, testWebhookBody, &req); err != nil {
		return err
	}
	id := webhookID(r)
	status, err := h.service.Test(r.Context(), c.Project, id, req.EventType)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, webhookTest{"webhook_endpoint.test", id, req.EventType, status, true})
}

type testWebhookRequest struct {
	EventType berth.EventType `json:"event_type"`
}

type webhookTest struct {
	Object            string          `json:"object"` // "webhook_endpoint.test"
	WebhookEndpointID berth.WebhookID `json:"webhook_endpoint_id"`
	EventType         berth.EventType `json:"event_type"`
	StatusCode        int             `json:"status_code"`
	Success           bool            `json:"success"` // the endpoint answered, with any status
}

// listEventTypes serves GET /v1/webhook_event_types.
func (h *webhooks) listEventTypes(x *exchange.Exchange, _ *http.Request, _ berth.Caller) error {
	return x.JSON(http.StatusOK, eventTypeList{"list", webhook.EventTypes})
}

type eventTypeList struct {
	Object string            `json:"object"` // "list"
	Data   []berth.EventType `json:"data"`
}
