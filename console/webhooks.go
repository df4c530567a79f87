package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

// A webhooksPage is the list of webhook endpoints.
type webhooksPage struct {
	Endpoints []berth.WebhookEndpoint
	Types     []string
	Form      formToken
	Created   *berth.WebhookEndpoint // an endpoint that was created just now, with its secret
}

// A webhookPage is the page of a webhook endpoint.
type webhookPage struct {
	berth.WebhookEndpoint
	Deliveries []delivery
	Next       string // path of the next page; "" at the end
	Form       formToken
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

// Title returns the name of the endpoint, or its URL without one.
func (p webhookPage) Title() string { return cmp.Or(p.Name, p.URL) }

// Answer returns how the last attempt ended.
func (d delivery) Answer() string {
	if len(d.Attempts) == 0 {
		return ""
	}
	return d.answer(len(d.Attempts) - 1)
}

// Answers returns how all attempts ended, a line for each.
func (d delivery) Answers() string {
	var lines []string
	for i := range d.Attempts {
		lines = append(lines, time.Unix(d.Attempts[i].At, 0).UTC().Format(time.RFC3339)+": "+d.answer(i))
	}
	return strings.Join(lines, "\n")
}

// answer returns how an attempt ended.
func (d delivery) answer(attempt int) string {
	a := d.Attempts[attempt]
	parts := []string{took(a.Milliseconds)}
	if a.Status != 0 {
		parts = append([]string{strconv.Itoa(a.Status)}, parts...)
	}
	if a.Error != "" {
		parts = append(parts, a.Error)
	}
	return strings.Join(parts, ", ")
}

func (p *webhooksPage) read(v *visit) error {
	var found list[berth.WebhookEndpoint]
	if err := v.get("/v1/webhook_endpoints?limit=100", &found); err != nil {
		return err
	}
	var types list[string]
	err := v.get("/v1/webhook_event_types", &types)
	*p = webhooksPage{Endpoints: found.Data, Types: types.Data, Form: v.formToken()}
	return err
}

// show serves GET /console/webhooks.
func (p *webhooksPage) show(v *visit) error {
	if err := p.read(v); err != nil {
		return err
	}
	return v.show(http.StatusOK, "webhooks", "Webhooks", p)
}

// create serves POST /console/webhooks. The answer is the only page that shows the signing
// secret.
func (p *webhooksPage) create(v *visit) error {
	in := v.form.fields
	req := map[string]any{"name": strings.TrimSpace(in.Get("name")), "url": strings.TrimSpace(in.Get("url")),
		"event_types": append([]string{}, in["type"]...)}
	var created berth.WebhookEndpoint
	if err := v.post("/v1/webhook_endpoints", req, &created); err != nil {
		return err
	}
	if err := p.read(v); err != nil {
		return err
	}
	p.Created = &created
	return v.show(http.StatusOK, "webhooks", "Webhooks", p)
}

// webhookPath returns the API's path of the endpoint of the visit.
func webhookPath(v *visit) string {
	return "/v1/webhook_endpoints/" + url.PathEscape(v.r.PathValue("webhook"))
}

func (p *webhookPage) read(v *visit) error {
	p.Form = v.formToken()
	if err := v.get(webhookPath(v), &p.WebhookEndpoint); err != nil {
		return err
	}
	query := url.Values{"limit": {"50"}, "order": {"desc"}}
	if after := v.r.URL.Query().Get("after"); after != "" {
		query.Set("after", after)
	}
	var found list[delivery]
	err := v.get(webhookPath(v)+"/deliveries?"+query.Encode(), &found)
	if p.Deliveries = found.Data; found.HasMore {
		p.Next = "?" + url.Values{"after": {found.LastID}}.Encode()
	}
	return err
}

// show serves GET /console/webhooks/{webhook}.
func (p *webhookPage) show(v *visit) error {
	if err := p.read(v); err != nil {
		return err
	}
	return v.show(http.StatusOK, "webhook", p.Title(), p)
}

// test serves POST /console/webhooks/{webhook}/test: it sends a sample event.
func (p *webhookPage) test(v *visit) error {
	var sent struct {
		StatusCode int `json:"status_code"`
	}
	err := v.post(webhookPath(v)+"/test", map[string]any{"event_type": v.form.fields.Get("type")}, &sent)
	f, ok := errors.AsType[*failure](err)
	if err != nil && (!ok || f.Status != http.StatusBadRequest) {
		return err
	}
	if err := p.read(v); err != nil {
		return err
	}
	if p.Result = fmt.Sprintf("The endpoint answered %d.", sent.StatusCode); f != nil {
		p.Result = f.Message
	}
	p.Failed = sent.StatusCode/100 != 2
	return v.show(http.StatusOK, "webhook", p.Title(), p)
}

// redeliver serves POST /console/webhooks/{webhook}/redeliver.
func (*webhookPage) redeliver(v *visit) error {
	if err := v.post(webhookPath(v)+"/deliveries/"+url.PathEscape(v.form.fields.Get("delivery"))+"/redeliver",
		struct{}{}, &struct{}{}); err != nil {
		return err
	}
	return v.redirect("/console/webhooks/" + url.PathEscape(v.r.PathValue("webhook")))
}

// delete serves POST /console/webhooks/{webhook}/delete.
func (*webhookPage) delete(v *visit) error {
	if err := v.delete(webhookPath(v)); err != nil {
		return err
	}
	return v.redirect("/console/webhooks")
}
