package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Stored responses are listed by creation, status and model, without their content; others and
// those of other projects are not.
func TestListResponses(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	create := func(body string) string {
		t.Helper()
		return h.call(200, "POST", "/v1/responses", body).id()
	}
	first := create(
		`{"model":"scripted","input":"canary in","instructions":"canary instructions","metadata":{"k":"v"}}`)
	create(`{"model":"scripted","input":"x","store":false}`)
	second := create(fmt.Sprintf(`{"model":"scripted","input":"x","previous_response_id":%q}`, first))
	waiting := h.call(200, "POST", "/v1/responses", `{"model":"vendor/fed","input":"x","background":true}`).id()
	gone := create(`{"model":"scripted","input":"x"}`)
	h.call(200, "DELETE", "/v1/responses/"+gone, nil)
	ids := func(query string) (ids []string) {
		t.Helper()
		for _, r := range h.call(200, "GET", "/v1/responses"+query, nil)["data"].([]any) {
			ids = append(ids, object(r.(map[string]any)).id())
		}
		return ids
	}
	for query, want := range map[string][]string{
		"":                                     {waiting, second, first},
		"?order=asc":                           {first, second, waiting},
		"?model=scripted":                      {second, first},
		"?model=nonesuch":                      nil,
		"?status=completed":                    {second, first},
		"?status=completed&order=asc&limit=1":  {first},
		"?status=failed":                       nil,
		"?status=in_progress&model=vendor/fed": {waiting},
		"?status=in_progress&model=scripted":   nil,
		"?limit=2":                             {waiting, second},
		"?limit=2&after=" + second:             {first},
		"?order=asc&after=" + first:            {second, waiting},
	} {
		if got := ids(query); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
	page := h.call(200, "GET", "/v1/responses?limit=1", nil)
	if page["has_more"] != true || page["last_id"] != waiting || page["object"] != "list" {
		t.Errorf("got %v", page)
	}
	if page := h.call(200, "GET", "/v1/responses?limit=1&order=asc&after="+second, nil); page["has_more"] != false {
		t.Errorf("the last page: got %v", page)
	}
	one := h.call(200, "GET", "/v1/responses?order=asc&limit=1", nil)
	if s := text(one); strings.Contains(s, "canary") {
		t.Errorf("the list has content: %s", s)
	}
	if r := object(one.at("data", 0).(map[string]any)); r["object"] != "response.summary" ||
		r["status"] != "completed" || r.at("metadata", "k") != "v" ||
		r.at("usage", "total_tokens") == nil || r["previous_response_id"] != nil || r["completed_at"] == nil ||
		r["model"] != "scripted" {
		t.Errorf("got %v", r)
	}
	for query, param := range map[string]string{"?status=done": "status", "?limit=0": "limit", "?order=up": "order",
		"?after=resp_none": "after", "?after=" + gone: "after", "?what=1": "what"} {
		if e := h.call(400, "GET", "/v1/responses"+query, nil); e.at("error", "param") != param {
			t.Errorf("%s: got %v, want an error about %s", query, e, param)
		}
	}
	h.call(200, "POST", "/v1/responses/"+waiting+"/cancel", nil)
	h.key("sk-b", "proj_b")
	h.token = "sk-b"
	if got := ids(""); len(got) != 0 {
		t.Errorf("another project sees %v", got)
	}
	h.call(400, "GET", "/v1/responses?after="+first, nil)
}

// A page of a filter that selects little ends after it has read many responses, and the next one
// continues from there.
func TestListResponsesOfManyOthers(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	id := func(i int) berth.ResponseID { return berth.ResponseID(fmt.Sprintf("resp_%048d", i)) }
	const n = store.MaxRead + 5
	for i := range n {
		body := &berth.Response{ID: id(i), Object: "response", Model: "common", Status: berth.StatusCompleted,
			Store: true}
		if i == 2 {
			body.Model = "rare"
		}
		check(t, h.store.CreateResponse(t.Context(), &store.Response{Project: berth.DefaultProject, Body: body,
			Request: &berth.ResponseRequest{}}, nil, store.Lease{}))
	}
	page := h.call(200, "GET", "/v1/responses?model=rare", nil)
	if len(page["data"].([]any)) != 0 || page["has_more"] != true || page["last_id"] != string(id(5)) {
		t.Fatalf("got %v", page)
	}
	page = h.call(200, "GET", "/v1/responses?model=rare&after="+page["last_id"].(string), nil)
	if page.at("data", 0, "id") != string(id(2)) || page["has_more"] != false {
		t.Errorf("got %v", page)
	}
}
