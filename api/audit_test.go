package api_test

import (
	"testing"
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
