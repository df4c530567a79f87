package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/berth-run/berth"
)

// A webhooksPage is the data of the list of webhook endpoints.
type webhooksPage struct {
	Endpoints []berth.WebhookEndpoint
	Types     []string
	Form      string
	Created   *berth.WebhookEndpoint // an endpoint that was created just now, with its secret
}

// A webhookPage is the data of the page of a webhook endpoint.
type webhookPage struct {
	berth.WebhookEndpoint
	Deliveries []delivery
	Next       string // path of the next page; "" at the end
	Form       string
	Result     string // of a test
	Failed     bool   // the test
}

// A delivery is an event for an endpoint in the API's answers.
type delivery struct {
	ID            string
	CreatedAt     int64  `json:"created_at"`
	EventType     string `json:"event_type"`
	Status        string
	NextAttemptAt *int64 `json:"next_attempt_at"`
	Attempts      []struct {
		At           int64
		Milliseconds int64
		Status       int
		Error        string
	}
	Payload berth.WebhookEvent
}

func (v *visit) readWebhooks() (p webhooksPage, err error) {
	var found list[berth.WebhookEndpoint]
	if err := v.get("/v1/webhook_endpoints?limit=100", &found); err != nil {
		return p, err
	}
	var types list[string]
	err = v.get("/v1/webhook_event_types", &types)
	return webhooksPage{Endpoints: found.Data, Types: types.Data, Form: v.formToken()}, err
}

// showWebhooks serves GET /console/webhooks.
func (v *visit) showWebhooks() error {
	p, err := v.readWebhooks()
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "webhooks", "Webhooks", p)
}

// createWebhook serves POST /console/webhooks. The answer is the only page that shows the signing
// secret.
func (v *visit) createWebhook() error {
	in := v.form.fields
	req := map[string]any{"name": strings.TrimSpace(in.Get("name")), "url": strings.TrimSpace(in.Get("url")), "event_types": append([]string{}, in["type"]...)}
	var created berth.WebhookEndpoint
	if err := v.post("/v1/webhook_endpoints", req, &created); err != nil {
		return err
	}
	p, err := v.readWebhooks()
	if err != nil {
		return err
	}
	p.Created = &created
	return v.show(http.StatusOK, "webhooks", "Webhooks", p)
}

// webhookPath returns the API's path of the endpoint of the visit.
func (v *visit) webhookPath() string {
	return "/v1/webhook_endpoints/" + url.PathEscape(v.r.PathValue("webhook"))
}

func (v *visit) readWebhook() (p webhookPage, err error) {
	p.Form = v.formToken()
	if err := v.get(v.webhookPath(), &p.WebhookEndpoint); err != nil {
		return p, err
	}
	query := url.Values{"limit": {"50"}, "order": {"desc"}}
	if after := v.r.URL.Query().Get("after"); after != "" {
		query.Set("after", after)
	}
	var found list[delivery]
	err = v.get(v.webhookPath()+"/deliveries?"+query.Encode(), &found)
	if p.Deliveries = found.Data; found.HasMore {
		p.Next = "?" + url.Values{"after": {found.LastID}}.Encode()
	}
	return p, err
}

// showWebhook serves GET /console/webhooks/{webhook}.
func (v *visit) showWebhook() error {
	p, err := v.readWebhook()
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "webhook", p.Name, p)
}

// testWebhook serves POST /console/webhooks/{webhook}/test: it sends a sample event.
func (v *visit) testWebhook() error {
	var sent struct {
		StatusCode int `json:"status_code"`
	}
	err := v.post(v.webhookPath()+"/test", map[string]any{"event_type": v.form.fields.Get("type")}, &sent)
	f, ok := errors.AsType[*failure](err)
	if err != nil && (!ok || f.Status != http.StatusBadRequest) {
		return err
	}
	p, err := v.readWebhook()
	if err != nil {
		return err
	}
	if p.Result = fmt.Sprintf("The endpoint answered %d.", sent.StatusCode); f != nil {
		p.Result = f.Message
	}
	p.Failed = sent.StatusCode/100 != 2
	return v.show(http.StatusOK, "webhook", p.Name, p)
}

// redeliver serves POST /console/webhooks/{webhook}/redeliver.
func (v *visit) redeliver() error {
	if err := v.post(v.webhookPath()+"/deliveries/"+url.PathEscape(v.form.fields.Get("delivery"))+"/redeliver", struct{}{}, &struct{}{}); err != nil {
		return err
	}
	return v.redirect("/console/webhooks/" + url.PathEscape(v.r.PathValue("webhook")))
}

// deleteWebhook serves POST /console/webhooks/{webhook}/delete.
func (v *visit) deleteWebhook() error {
	if err := v.delete(v.webhookPath()); err != nil {
		return err
	}
	return v.redirect("/console/webhooks")
}
