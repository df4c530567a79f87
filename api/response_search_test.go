package api_test

import (
	"slices"
	"testing"
)

// A search finds words in messages, commands and code, page by page, and not those of another project.
func TestResponseSearch(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-mine", "proj_mine")
	ids := map[string]string{}
	for name, body := range map[string]string{
		"input":   `{"model":"scripted","input":"The HARBOUR at dawn"}`,
		"command": `{"model":"scripted","input":"` + "```sh\\nls /srv/harbour\\n```" + `","tools":[{"type":"shell"}]}`,
		"other":   `{"model":"scripted","input":"The pier"}`,
	} {
		ids[name] = h.call(200, "POST", "/v1/responses", body).id()
	}
	found := map[string]bool{}
	path := "/v1/responses?search=harbour&limit=1"
	for pages := 1; ; pages++ {
		list := h.call(200, "GET", path, nil)
		if r, ok := list.at("data", 0, "id").(string); ok {
			found[r] = true
		}
		if list["has_more"] != true {
			break
		}
		if pages > 5 {
			t.Fatal("the search does not end")
		}
		path = "/v1/responses?search=harbour&limit=1&after=" + list["last_id"].(string)
	}
	if len(found) != 2 || !found[ids["input"]] || !found[ids["command"]] {
		t.Errorf("got %v of %v", found, ids)
	}
	h.key("sk-theirs", "proj_theirs")
	if list := h.call(200, "GET", "/v1/responses?search=harbour", nil); len(list["data"].([]any)) != 0 {
		t.Errorf("another project finds %v", list)
	}
}

// The list has the key of each response, and selects by key and by the tool that a response has called.
func TestResponsesByKeyAndTool(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-ann", "proj_mine")
	h.key("sk-bob", "proj_mine")
	create := func(token, body string) string {
		h.t.Helper()
		h.token = token
		return h.call(200, "POST", "/v1/responses", body).id()
	}
	call := create("sk-ann", `{"model":"scripted","input":"`+"```sh\\nls\\n```"+`","tools":[{"type":"shell"}]}`)
	said := create("sk-bob", `{"model":"scripted","input":"noon"}`)
	list := h.call(200, "GET", "/v1/responses?order=asc", nil)
	ann, _ := list.at("data", 0, "api_key_id").(string)
	bob, _ := list.at("data", 1, "api_key_id").(string)
	if ann == "" || bob == "" || ann == bob {
		t.Errorf("the keys are %q and %q", ann, bob)
	}
	for query, want := range map[string][]string{
		"api_key_id=" + ann: {call}, "api_key_id=" + bob: {said}, "api_key_id=none": nil,
		"tool=shell": {call}, "tool=mcp": nil, "tool=shell&api_key_id=" + bob: nil, "tool=shell&search=ls": {call},
		"tool=shell&search=noon": nil, "tool=": {said, call},
	} {
		var got []string
		for _, r := range h.call(200, "GET", "/v1/responses?"+query, nil)["data"].([]any) {
			got = append(got, object(r.(map[string]any)).id())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
}
