package api_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/store"
)

// priced is a model whose turns cost 0.6.
type priced struct{}

func (priced) Stream(context.Context, *model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		_ = yield(model.Text{Text: "ok"}, nil) &&
			yield(model.Finish{Reason: model.FinishStop,
				Usage:  berth.Usage{InputTokens: 1, OutputTokens: 1, TotalTokens: 2},
				Origin: model.Origin{Upstream: "a", Model: "m"}, Cost: &berth.Cost{Value: 600_000_000,
					Currency: "eur"}}, nil)
	}
}

// budgeted is a house whose model "priced" costs 0.6 a turn.
func budgeted(t *testing.T) *house {
	t.Helper()
	return newHouse(t, func(o *api.Options) {
		st := storeOf(o)
		q := project.NewQuota(project.QuotaOptions{Objects: st, Keys: st, Usages: st, Currency: "eur"})
		o.Exchange.Quota, o.Engine.Quota, o.Models.Currency = q, q, "eur"
	}, model.Rule{Match: "priced", Provider: priced{}})
}

// A key that has spent its month's budget is refused by every route that calls a model, with
// what it spent. Another key of the project works until the project's budget is spent.
func TestBudgetOfMonth(t *testing.T) {
	t.Parallel()
	h := budgeted(t)
	h.key("sk-admin", berth.AdminProject)
	p := h.call(200, "POST", "/v1/organization/projects", `{"name":"research","limits":{"cost_per_month":1.5}}`)
	path := "/v1/organization/projects/" + p.id()
	first := h.call(200, "POST", path+"/api_keys", `{"name":"a","limits":{"cost_per_month":0.6}}`)
	second := h.call(200, "POST", path+"/api_keys", `{"name":"b"}`)
	if got := first.at("limits", "cost_per_month"); got != 0.6 {
		t.Errorf("got the limit %v", got)
	}
	h.call(400, "POST", path+"/api_keys/"+second.id(), `{"limits":{"cost_per_month":"1"}}`)
	h.call(200, "POST", path+"/api_keys/"+second.id(), `{}`) // changes nothing
	h.call(404, "POST", path+"/api_keys/key_none", `{"limits":{}}`)

	h.token = first["value"].(string)
	const body = `{"model":"priced","input":"x","messages":[{"role":"user","content":"x"}]}`
	response, chat := strings.Replace(body, `,"messages":[{"role":"user","content":"x"}]`, "", 1),
		strings.Replace(body, `"input":"x",`, "", 1)
	h.call(200, "POST", "/v1/responses", response)
	want := func(e object, says string) {
		t.Helper()
		if m, _ := e.at("error", "message").(string); e.at("error", "code") != "insufficient_quota" ||
			e.at("error", "type") != "insufficient_quota" || !strings.Contains(m, says) {
			t.Errorf("got %v, want %q", e, says)
		}
	}
	ofKey := "You exceeded your current quota. API key " + first.id() +
		" has spent 0.6 eur in this month and its limit is 0.6."
	want(h.call(429, "POST", "/v1/responses", response), ofKey)
	want(h.call(429, "POST", "/v1/chat/completions", chat), ofKey)
	want(h.call(429, "POST", "/v1/responses/compact", response), ofKey)
	if resp := h.send(t.Context(), "POST", "/v1/responses", response); resp.Header.Get("x-should-retry") != "false" &&
		!strings.HasSuffix(time.Now().UTC().Add(2*time.Minute).Format("02T"), "01T") {
		t.Errorf("got headers %v, want no retry", resp.Header)
	}
	h.call(200, "GET", "/v1/models", nil)

	h.token = second["value"].(string)
	h.call(200, "POST", "/v1/chat/completions", chat)
	h.call(200, "POST", "/v1/responses", response) // begins with 1.2 of 1.5
	want(h.call(429, "POST", "/v1/responses", response),
		"Project "+p.id()+" has spent 1.8 eur in this month and its limit is 1.5.")

	line := func(o object) string {
		limit := any("none")
		if l, ok := o["limit"].(map[string]any); ok {
			limit = l["value"]
		}
		month, next := store.Month(time.Now())
		if o["period_start"] != float64(month.Unix()) || o["period_end"] != float64(next.Unix()) ||
			o.at("used", "currency") != "eur" || o["object"] != "organization.spend" {
			t.Errorf("got %v", o)
		}
		return text([]any{o["project_id"], o["api_key_id"], o.at("used", "value"), limit})
	}
	lines := func(query string) (all []string) {
		t.Helper()
		for _, o := range h.call(200, "GET", "/v1/organization/spend"+query, nil)["data"].([]any) {
			all = append(all, line(o.(map[string]any)))
		}
		return all
	}
	for _, o := range h.call(200, "GET", "/v1/organization/spend", nil)["data"].([]any) {
		if warning := o.(map[string]any)["warning"]; warning != nil {
			t.Errorf("a server with prices warns: %v", warning)
		}
	}
	own := strings.Join([]string{text([]any{p.id(), nil, 1.8, 1.5}), text([]any{p.id(), first.id(), 0.6, 0.6}),
		text([]any{p.id(), second.id(), 1.2, "none"})}, " ")
	if got := strings.Join(lines(""), " "); got != own {
		t.Errorf("the project's key sees %s, want %s", got, own)
	}
	h.token = "sk-admin"
	if got := strings.Join(lines("?project_ids="+p.id()), " "); got != own {
		t.Errorf("the admin key sees %s, want %s", got, own)
	}
	if got := strings.Join(lines("?limit=2&project_ids[]="+p.id()+"&after="+first.id()), " "); !strings.HasPrefix(got,
		text([]any{p.id(), second.id(), 1.2, "none"})) {
		t.Errorf("the second page is %s", got)
	}
	h.key("sk-other", "proj_other")
	h.token = "sk-other"
	if got := lines("?project_ids=" + p.id()); len(got) != 0 {
		t.Errorf("another project sees %v", got)
	}

	// More money, and the limit of the key gone: it works again.
	h.token = "sk-admin"
	h.call(200, "POST", path, `{"limits":{"cost_per_month":-1}}`)
	if got := h.call(200, "POST", path+"/api_keys/"+first.id(),
		`{"limits":{}}`); len(got["limits"].(map[string]any)) != 0 {
		t.Errorf("got %v", got)
	}
	h.token = first["value"].(string)
	until := time.Now().Add(time.Minute)
	for h.send(t.Context(), "POST", "/v1/responses", response).StatusCode != 200 {
		if time.Now().After(until) {
			t.Fatal("the new limits have no effect")
		}
	}
}
