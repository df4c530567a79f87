package e2b

import (
	"net/http"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/deadline"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/webhook"
)

// errNoWebhooks is the error of a door without a sender.
var errNoWebhooks = berth.Errorf(berth.CodeUnavailable, "This server sends no events.")

var (
	hookFields = rule.Fields{"name": rule.Text(1, 256), "url": rule.Text(1, 2048), "events": rule.List(rule.AnyText,
		100), "enabled": rule.Boolean,
		"signatureSecret": rule.Text(1, 256)}
	createHook = rule.Object(hookFields, "name", "url", "events", "signatureSecret")
	patchHook  = rule.Object(hookFields)
)

// A hookRequest describes a new webhook or changes to one. Nil fields do not change.
type hookRequest struct {
	Name    *string           `json:"name"`
	URL     *string           `json:"url"`
	Events  []berth.EventType `json:"events"`
	Enabled *bool             `json:"enabled"`
	Secret  *string           `json:"signatureSecret"` // no answer has it
}

func (req *hookRequest) endpoint() webhook.EndpointRequest {
	return webhook.EndpointRequest{Name: req.Name, URL: req.URL, EventTypes: req.Events, Sandboxes: true,
		Secret: req.Secret, Enabled: req.Enabled}
}

// A hook is an endpoint that receives the events of sandboxes.
type hook struct {
	ID        berth.WebhookID   `json:"id"`
	TeamID    berth.ProjectID   `json:"teamId"`
	Name      string            `json:"name"`
	CreatedAt string            `json:"createdAt"` // RFC 3339
	Enabled   bool              `json:"enabled"`
	URL       string            `json:"url"`
	Events    []berth.EventType `json:"events"`
}

func hookOf(p berth.ProjectID, e *berth.WebhookEndpoint) hook {
	return hook{e.ID, p, e.Name, time.Unix(e.CreatedAt, 0).UTC().Format(time.RFC3339), !e.Disabled, e.URL, e.EventTypes}
}

// events serves the events of sandboxes and their webhooks.
type events struct {
	deadlines *deadline.Service
	webhooks  *webhook.Service // nil sends none
}

// createWebhook serves POST /events/webhooks.
func (h *events) createWebhook(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req hookRequest
	if err := x.Decode(r, createHook, &req); err != nil {
		return err
	}
	if h.webhooks == nil {
		return errNoWebhooks
	}
	e, err := h.webhooks.Create(r.Context(), c.Project, req.endpoint())
	if err != nil {
		return err
	}
	return x.JSON(http.StatusCreated, hookOf(c.Project, e))
}

// listWebhooks serves GET /events/webhooks: all webhooks of the project, the newest first.
func (h *events) listWebhooks(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if h.webhooks == nil {
		return errNoWebhooks
	}
	hooks := []hook{}
	page := exchange.Page{Limit: 100}
	for more := true; more; {
		var list []*berth.WebhookEndpoint
		var err error
		if list, more, err = h.webhooks.List(r.Context(), c.Project, page); err != nil {
			return err
		}
		for _, e := range list {
			page.After = string(e.ID)
			if e.OfSandboxes() {
				hooks = append(hooks, hookOf(c.Project, e))
			}
		}
	}
	return x.JSON(http.StatusOK, hooks)
}

// findHook returns the webhook of a request's path.
func (h *events) findHook(r *http.Request, c berth.Caller) (*berth.WebhookEndpoint, error) {
	if h.webhooks == nil {
		return nil, errNoWebhooks
	}
	id := berth.WebhookID(r.PathValue("webhook"))
	e, err := h.webhooks.Get(r.Context(), c.Project, id)
	if err == nil && !e.OfSandboxes() || berth.ErrorCode(err) == berth.CodeNotFound {
		return nil, berth.Errorf(berth.CodeNotFound, "Webhook '%s' not found.", rule.Clip(string(id)))
	}
	return e, err
}

// getWebhook serves GET /events/webhooks/{webhook}.
func (h *events) getWebhook(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	e, err := h.findHook(r, c)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, hookOf(c.Project, e))
}

// patchWebhook serves PATCH /events/webhooks/{webhook}.
func (h *events) patchWebhook(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req hookRequest
	if err := x.DecodeOptional(r, patchHook, &req); err != nil {
		return err
	}
	e, err := h.findHook(r, c)
	if err != nil {
		return err
	}
	if e, err = h.webhooks.Update(r.Context(), c.Project, e.ID, req.endpoint()); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, hookOf(c.Project, e))
}

// deleteWebhook serves DELETE /events/webhooks/{webhook}. Events that it has not received are not sent.
func (h *events) deleteWebhook(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	e, err := h.findHook(r, c)
	if err != nil {
		return err
	}
	if err := h.webhooks.Delete(r.Context(), c.Project, e.ID); err != nil {
		return err
	}
	x.WriteHeader(http.StatusOK)
	return nil
}
