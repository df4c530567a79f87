package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/store"
)

// used records usage of a house at the current time.
func (h *house) used(p berth.ProjectID, kind store.UsageKind, key berth.KeyID, name string, count, input int64) {
	h.t.Helper()
	check(h.t, h.store.AddUsage(h.t.Context(), &store.Usage{Project: p, Kind: kind, Key: key, Name: name, Count: count,
		InputTokens: input, CachedTokens: input / 2, OutputTokens: 3, ReasoningTokens: 1, Seconds: 60}))
}

func TestCompletionsUsage(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	before := time.Now()
	h.used("proj_a", store.UsageResponse, "key_1", "small", 2, 10)
	h.used("proj_a", store.UsageResponse, "key_1", "large", 1, 100)
	h.used("proj_a", store.UsageResponse, "key_2", "small", 1, 1000)
	h.used("proj_b", store.UsageResponse, "key_3", "small", 1, 7)
	from := before.Add(-time.Hour).Unix()
	// results requests two buckets, in case a day ends during the test.
	results := func(query string) []string {
		t.Helper()
		page := h.call(200, "GET", fmt.Sprintf("/v1/organization/usage/completions?start_time=%d&end_time=%d&%s", from,
			time.Now().Unix()+60, query), nil)
		var lines []string
		for _, b := range page.at("data").([]any) {
			for _, r := range object(b.(map[string]any)).at("results").([]any) {
				r := object(r.(map[string]any))
				lines = append(lines, fmt.Sprint(r["project_id"], " ", r["api_key_id"], " ", r["model"], ": ",
					r["num_model_requests"], ", ", r["input_tokens"], " (",
					r["input_cached_tokens"], ", ", r["input_uncached_tokens"], ") ", r["output_tokens"], " (",
					r.at("berth", "reasoning_tokens"), ")"))
			}
		}
		return lines
	}
	for query, want := range map[string][]string{
		"": {"<nil> <nil> <nil>: 4, 1110 (555, 555) 9 (3)"},
		"group_by[]=model": {"<nil> <nil> large: 1, 100 (50, 50) 3 (1)",
			"<nil> <nil> small: 3, 1010 (505, 505) 6 (2)"},
		"group_by=project_id": {"proj_a <nil> <nil>: 4, 1110 (555, 555) 9 (3)"},
		"group_by=api_key_id,model&models=small": {"<nil> key_1 small: 2, 10 (5, 5) 3 (1)",
			"<nil> key_2 small: 1, 1000 (500, 500) 3 (1)"},
		"api_key_ids[]=key_2&group_by[]=user_id": {"<nil> <nil> <nil>: 1, 1000 (500, 500) 3 (1)"},
		"project_ids=proj_b":                     nil, // another's is as one that is not
		"project_ids=proj_none":                  nil,
		"user_ids=user-1":                        nil,
		"batch=true":                             nil,
		"api_key_ids=key_3":                      nil,
	} {
		if diff := cmp.Diff(want, results("bucket_width=1d&"+query)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	for query, param := range map[string]string{
		"": "start_time", "start_time=x": "start_time", "start_time=5&end_time=5": "end_time",
		"start_time=5&bucket_width=2d": "bucket_width",
		"start_time=5&limit=32":        "limit", "start_time=5&bucket_width=1h&limit=169": "limit",
		"start_time=5&group_by=colour": "group_by",
		"start_time=5&page=x":          "page", "start_time=86400&page=page_0": "page",
		"start_time=5&page=page_7": "page", "start_time=5&what=1": "what",
	} {
		if e := h.call(400, "GET", "/v1/organization/usage/completions?"+query, nil); e.at("error", "param") != param {
			t.Errorf("%s: got %v, want an error about %s", query, e, param)
		}
	}
}

// Costs are listed by upstream and model, for the caller's project only.
func TestCosts(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(o *api.Options) { o.Models.Currency = "eur" })
	h.key("sk-a", "proj_a")
	spent := func(p berth.ProjectID, key berth.KeyID, name string, cost berth.Amount) {
		check(t, h.store.AddUsage(t.Context(), &store.Usage{Project: p, Kind: store.UsageUpstream, Key: key, Name: name,
			Count: 1, InputTokens: 10, OutputTokens: 5, Cost: cost}))
	}
	start := time.Now().Add(-time.Hour).Unix()
	spent("proj_a", "key_1", "azure/big", 1_500_000_000)
	spent("proj_a", "key_1", "azure/big", 1)
	spent("proj_a", "key_2", "local/vendor/free", 0)
	spent("proj_b", "key_3", "azure/big", 1_000_000_000)
	results := func(query string) []string {
		t.Helper()
		page := h.call(200, "GET", fmt.Sprintf("/v1/organization/costs?start_time=%d&end_time=%d&%s", start,
			time.Now().Unix()+60, query), nil)
		var lines []string
		for _, b := range page.at("data").([]any) {
			for _, r := range object(b.(map[string]any)).at("results").([]any) {
				r := object(r.(map[string]any))
				lines = append(lines, fmt.Sprintf("%v %v %v: %.9f %v, %v %v", r["project_id"], r["api_key_id"],
					r["line_item"],
					r.at("amount", "value"), r.at("amount", "currency"), r["quantity"], r["quantity_unit"]))
			}
		}
		return lines
	}
	for query, want := range map[string][]string{
		"": {"<nil> <nil> <nil>: 1.500000001 eur, <nil> <nil>"},
		"group_by[]=line_item": {"<nil> <nil> azure/big: 1.500000001 eur, 30 tokens",
			"<nil> <nil> local/vendor/free: 0.000000000 eur, 15 tokens"},
		"group_by=project_id,api_key_id&bucket_width=1d&api_key_ids=key_2": {"proj_a key_2 <nil>: 0.000000000 eur, <nil> <nil>"},
		"project_ids=proj_b": nil,
	} {
		if diff := cmp.Diff(want, results(query)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	for _, query := range []string{"bucket_width=1h", "group_by=model", "limit=181", "models=a"} {
		h.call(400, "GET", fmt.Sprintf("/v1/organization/costs?start_time=%d&%s", start, query), nil)
	}
	check(t, h.store.AddUsage(t.Context(), &store.Usage{Project: "proj_a", Kind: store.UsageResponse, Name: "m",
		Count: 1, Cost: 7}))
	page := h.call(200, "GET", fmt.Sprintf("/v1/organization/usage/completions?start_time=%d&end_time=%d", start,
		time.Now().Unix()+60), nil)
	if !strings.Contains(fmt.Sprint(page), "cost:map[currency:eur value:7e-09]") {
		t.Errorf("usage has no cost: %v", page)
	}
}

// Pages consist of whole buckets, including empty ones, and contain all usage exactly once.
func TestUsagePages(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	h.used("proj_a", store.UsageResponse, "key_1", "m", 1, 10)
	end := time.Now().Unix() + 1
	start := end - 3*3600
	var times []int64
	tokens := 0.0
	for page := ""; ; {
		got := h.call(200, "GET",
			fmt.Sprintf("/v1/organization/usage/completions?bucket_width=1m&limit=7&start_time=%d&end_time=%d%s", start,
				end, page), nil)
		data := got.at("data").([]any)
		if len(data) > 7 {
			t.Fatalf("got a page of %d buckets", len(data))
		}
		for _, b := range data {
			b := object(b.(map[string]any))
			times = append(times, int64(b["start_time"].(float64)))
			if width := b["end_time"].(float64) - b["start_time"].(float64); width > 60 || width < 1 {
				t.Errorf("got a bucket of %v s", width)
			}
			for _, r := range b["results"].([]any) {
				tokens += r.(map[string]any)["input_tokens"].(float64)
			}
		}
		next, more := got["next_page"].(string)
		if more != got["has_more"].(bool) {
			t.Fatalf("got has_more %v and next_page %v", got["has_more"], got["next_page"])
		}
		if !more {
			break
		}
		page = "&page=" + next
	}
	for i, at := range times {
		if at != times[0]+int64(i)*60 || at%60 != 0 {
			t.Fatalf("bucket %d starts at %d, the first at %d", i, at, times[0])
		}
	}
	if n := len(times); times[0] > start || times[n-1]+60 < end || n > 182 || tokens != 10 {
		t.Errorf("got %d buckets from %d to %d with %v tokens, want %d to %d with 10", n, times[0], times[n-1]+60,
			tokens, start, end)
	}
}

// Calls of tools are counted by tool, project and key; a key sees its own project.
func TestToolUsage(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	from := time.Now().Add(-time.Hour).Unix()
	h.used("proj_a", store.UsageTool, "key_1", "shell", 3, 0)
	h.used("proj_a", store.UsageTool, "key_2", "shell", 1, 0)
	h.used("proj_a", store.UsageTool, "key_1", "mcp", 2, 0)
	h.used("proj_b", store.UsageTool, "key_3", "shell", 100, 0)
	h.used("proj_a", store.UsageResponse, "key_1", "m", 7, 10)
	for query, want := range map[string][]string{
		"":                          {"<nil> <nil> <nil> 6"},
		"group_by=tool":             {"<nil> <nil> mcp 2", "<nil> <nil> shell 4"},
		"group_by=tool&tools=shell": {"<nil> <nil> shell 4"},
		"group_by=api_key_id":       {"<nil> key_1 <nil> 5", "<nil> key_2 <nil> 1"},
		"group_by=project_id":       {"proj_a <nil> <nil> 6"},
		"api_key_ids=key_2":         {"<nil> <nil> <nil> 1"},
		"project_ids=proj_b":        nil,
		"user_ids=user_1":           nil,
		"group_by=tool&bucket_width=1d&api_key_ids=key_1": {"<nil> <nil> mcp 2", "<nil> <nil> shell 3"},
	} {
		page := h.call(200, "GET", fmt.Sprintf("/v1/organization/usage/tool_calls?start_time=%d&end_time=%d&%s", from,
			time.Now().Unix()+60, query), nil)
		sums := map[string]float64{} // a day may end during the test
		for _, b := range page.at("data").([]any) {
			for _, r := range object(b.(map[string]any)).at("results").([]any) {
				r := object(r.(map[string]any))
				sums[fmt.Sprint(r["project_id"], " ", r["api_key_id"], " ", r["tool"])] += r["num_requests"].(float64)
				if r["object"] != "organization.usage.tool_calls.result" || r["user_id"] != nil {
					t.Errorf("got %v", r)
				}
			}
		}
		var got []string
		for name, n := range sums {
			got = append(got, fmt.Sprint(name, " ", n))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	h.call(400, "GET", fmt.Sprintf("/v1/organization/usage/tool_calls?start_time=%d&group_by=model", from), nil)
}

func TestSessionsUsage(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	c := h.call(200, "POST", "/v1/containers", `{"name":"x","memory_limit":"4g"}`)
	h.used("proj_a", store.UsageContainer, "key_1", "1g", 2, 0)
	h.used("proj_b", store.UsageContainer, "key_1", "1g", 2, 0)
	h.call(200, "DELETE", "/v1/containers/"+c.id(), nil)
	got := h.call(200, "GET",
		fmt.Sprintf("/v1/organization/usage/code_interpreter_sessions?group_by=project_id&start_time=%d&end_time=%d",
			time.Now().Unix()-60, time.Now().Unix()+60), nil)
	sessions, minutes := 0.0, 0.0
	for _, b := range got.at("data").([]any) {
		for _, r := range b.(map[string]any)["results"].([]any) {
			r := object(r.(map[string]any))
			sessions += r["num_sessions"].(float64)
			minutes += r.at("berth", "seconds", "1g").(float64) / 60
			if r["project_id"] != "proj_a" || r.at("berth", "seconds", "4g") == nil {
				t.Errorf("got %v", r)
			}
		}
	}
	if sessions != 3 || minutes != 1 {
		t.Errorf("got %v sessions and %v minutes, want 3 and 1", sessions, minutes)
	}
	if e := h.call(400, "GET", "/v1/organization/usage/code_interpreter_sessions?start_time=5&group_by=model",
		nil); !strings.Contains(fmt.Sprint(e), "group_by") {
		t.Errorf("got %v", e)
	}
}
