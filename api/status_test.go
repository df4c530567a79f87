package api_test

import (
	"testing"

	"github.com/berth-run/berth"
)

// TestOperator: the state of the server and its audit record are for the operator only.
func TestOperator(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	// a server without keys
	if s := h.call(200, "GET", "/v1/organization/status", nil); s["object"] != "organization.status" ||
		s["version"] != "1" {
		t.Errorf("got %v", s)
	}
	h.call(200, "GET", "/v1/organization/audit", nil)
	h.key("sk-admin", berth.AdminProject)
	h.key("sk-theirs", "proj_theirs")
	h.key("sk-default", berth.DefaultProject)
	for token, want := range map[string][2]int{"sk-admin": {200, 200}, "sk-theirs": {404, 403},
		"sk-default": {200, 403}} {
		h.token = token
		h.call(want[0], "GET", "/v1/organization/status", nil)
		h.call(want[1], "GET", "/v1/organization/audit", nil)
		h.call(want[1], "POST", "/v1/organization/audit/verify", nil)
	}
	h.token = "sk-admin"
	for _, name := range []string{"a", "b", "c"} {
		h.call(200, "POST", "/v1/organization/projects", `{"name":"`+name+`"}`)
	}
	first := h.call(200, "GET", "/v1/organization/audit?action=project.created&limit=2", nil)
	if first.at("data", 0, "name") != "c" || first["has_more"] != true {
		t.Errorf("got %v, want the newest first", first)
	}
	rest := h.call(200, "GET", "/v1/organization/audit?action=project.created&after="+first["last_id"].(string), nil)
	if rest.at("data", 0, "name") != "a" || rest["has_more"] != false {
		t.Errorf("got %v", rest)
	}
	if empty := h.call(200, "GET", "/v1/organization/audit?container_id=cntr_none",
		nil); len(empty["data"].([]any)) != 0 || empty["last_id"] != nil {
		t.Errorf("got %v", empty)
	}
	if v := h.call(200, "POST", "/v1/organization/audit/verify", nil); v["valid"] != true ||
		v["entries"].(float64) < 3 || v["checkpoint"] == "" {
		t.Errorf("got %v", v)
	}
	h.call(400, "GET", "/v1/organization/audit?limit=0", nil)
}
