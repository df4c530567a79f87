package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/engine"
	largefiles "github.com/berth-run/berth/files/uploads"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/skills"
)

func number(n int64) *int64 { return &n }

// limited is a house whose projects have these limits.
func limited(t *testing.T, limits map[berth.ProjectID]berth.Limits) *house {
	t.Helper()
	return newHouse(t, func(o *api.Options) {
		st := storeOf(o)
		q := project.NewQuota(project.QuotaOptions{Objects: st,
			Sizes: []project.Size{st.FileBytes, st.StoredBytes, func(ctx context.Context, p berth.ProjectID) (int64,
				error) {
				return largefiles.StoredBytes(ctx, st, p)
			}, func(ctx context.Context, p berth.ProjectID) (int64, error) {
				return skills.StoredBytes(ctx, st, p)
			}}, Usages: st, Limits: limits})
		o.Exchange.Quota = q
		o.Engine.Quota = q
		o.Engine.Forwarder = engine.NewForwarder(engine.ForwarderOptions{Models: o.Engine.Models, Usages: st, Quota: q,
			Log: o.Exchange.Log})
	})
}

// rates are the headers about rates that an answer has, by the ends of their names.
func rates(h http.Header) map[string]string {
	out := map[string]string{}
	for name, v := range h {
		if rest, ok := strings.CutPrefix(strings.ToLower(name), "x-ratelimit-"); ok {
			out[rest] = v[0]
		}
	}
	return out
}

// Every answer to a limited project has rate limit headers, and a refusal has the time of a
// retry. Without a limit, there are no such headers.
func TestRates(t *testing.T) {
	t.Parallel()
	h := limited(t,
		map[berth.ProjectID]berth.Limits{"proj_a": {RequestsPerMinute: number(2), TokensPerMinute: number(1000)}})
	h.key("sk-a", "proj_a")
	const body = `{"model":"scripted","input":"hello"}`
	want := func(resp *http.Response, status int, remaining string) {
		t.Helper()
		got := rates(resp.Header)
		if resp.StatusCode != status || got["limit-requests"] != "2" || got["remaining-requests"] != remaining ||
			got["limit-tokens"] != "1000" ||
			len(got) != 6 || got["reset-requests"] == "" || got["reset-tokens"] == "" {
			t.Errorf("got %d %v, want %d and %s left of 2", resp.StatusCode, got, status, remaining)
		}
	}
	want(h.send(t.Context(), "GET", "/v1/models", nil), 200, "2")
	want(h.send(t.Context(), "POST", "/v1/responses", body), 200, "1")
	want(h.send(t.Context(), "POST", "/v1/responses", `{"model":"scripted","input":"hello","stream":true}`), 200, "0")
	want(h.send(t.Context(), "GET", "/v1/responses/resp_none", nil), 404, "0")
	resp := h.send(t.Context(), "POST", "/v1/responses", body)
	want(resp, 429, "0")
	if resp.Header.Get("retry-after") == "" || resp.Header.Get("retry-after-ms") == "" ||
		resp.Header.Get("x-should-retry") != "" {
		t.Errorf("got headers %v, want when to try again", resp.Header)
	}
	e := h.call(429, "POST", "/v1/responses", body)
	e.at("error").(map[string]any)["message"] = ""
	if diff := cmp.Diff(object{"error": map[string]any{"message": "", "type": "requests", "param": nil,
		"code": "rate_limit_exceeded"}}, e); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h.key("sk-b", "proj_b")
	if got := rates(h.send(t.Context(), "POST", "/v1/responses", body).Header); len(got) != 0 {
		t.Errorf("without a limit: got %v", got)
	}
}

// The answer to an exhausted quota forbids a retry.
func TestQuotaOfStorage(t *testing.T) {
	t.Parallel()
	h := limited(t, map[berth.ProjectID]berth.Limits{"": {StorageBytes: number(10)}})
	form, kind := upload("a.txt", strings.NewReader("eleven byte"), "purpose", "user_data")
	resp := h.send(t.Context(), "POST", "/v1/files", form, kind)
	if resp.StatusCode != 429 || resp.Header.Get("x-should-retry") != "false" || resp.Header.Get("retry-after") != "" {
		t.Errorf("got %d %v", resp.StatusCode, resp.Header)
	}
	form, kind = upload("a.txt", strings.NewReader("eleven byte"), "purpose", "user_data")
	e := h.call(429, "POST", "/v1/files", form, kind)
	if e.at("error", "type") != "insufficient_quota" || e.at("error", "code") != "insufficient_quota" {
		t.Errorf("got %v", e)
	}
}

func TestArchivedProject(t *testing.T) {
	t.Parallel()
	h := limited(t, nil)
	h.key("sk-a", "proj_a")
	if _, err := project.New(project.Options{Objects: h.store}).Archive(t.Context(), "proj_a"); err != nil {
		t.Fatal(err)
	}
	if e := h.call(401, "GET", "/v1/models", nil); e.at("error", "code") != "project_archived" {
		t.Errorf("got %v", e)
	}
}
