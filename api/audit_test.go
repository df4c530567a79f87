package api_test

import (
	"testing"

	"github.com/berth-run/berth/audit"
)

// The audit entries of a container can be read after its deletion.
func TestContainerAudit(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	id := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	h.call(200, "DELETE", "/v1/containers/"+id, nil)
	h.call(404, "GET", "/v1/containers/"+id, nil)
	got := h.call(200, "GET", "/v1/containers/"+id+"/audit", nil)
	for i, want := range []string{"container.created", "container.ended", "container.erased"} {
		if a := got.at("data", i, "action"); a != want {
			t.Errorf("entry %d: got %v, want %s", i, a, want)
		}
	}
	if reason := got.at("data", 1, "reason"); reason != "deleted" {
		t.Errorf("the reason of the end: got %v, want deleted", reason)
	}
	if prev, hash := got.at("data", 2, "prev"), got.at("data", 1, "hash"); prev != hash {
		t.Errorf("the last entry follows %v, want %v", prev, hash)
	}
	if got.at("checkpoint") == "" {
		t.Error("there is no checkpoint")
	}
}

// TestRefusedConnections: a project sees what the network refused to its own containers, and nothing else of the record.
func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-mine", "proj_mine")
	h.key("sk-theirs", "proj_theirs")
	err := h.record.Commit(t.Context(),
		audit.Entry{Project: "proj_mine", Container: "cntr_1", Action: audit.EgressRefused, Host: "a.example", Reason: "not allowed"},
		audit.Entry{Project: "proj_theirs", Container: "cntr_2", Action: audit.EgressRefused, Host: "theirs.example"},
		audit.Entry{Project: "proj_mine", Container: "cntr_1", Action: audit.EgressEnded, Host: "allowed.example"},
		audit.Entry{Project: "proj_mine", Container: "cntr_1", Action: audit.EgressRefused, Host: "b.example"})
	if err != nil {
		t.Fatal(err)
	}
	h.token = "sk-mine"
	got := h.call(200, "GET", "/v1/refused_connections?limit=1", nil)
	if got.at("data", 0, "host") != "b.example" || got["has_more"] != true {
		t.Errorf("got %v, want the newest", got)
	}
	got = h.call(200, "GET", "/v1/refused_connections?after="+got["last_id"].(string), nil)
	if got.at("data", 0, "host") != "a.example" || got.at("data", 0, "reason") != "not allowed" || got.at("data", 1) != nil {
		t.Errorf("got %v, want the older one of the project alone", got)
	}
	h.call(400, "GET", "/v1/refused_connections?project_id=proj_theirs", nil)
	h.call(400, "GET", "/v1/refused_connections?limit=0", nil)
}
