package api_test

import "testing"

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
