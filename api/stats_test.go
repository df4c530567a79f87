package api_test

import "testing"

// The driver of this test reads no figures, so they are zero.
func TestContainerStats(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	id := h.call(200, "POST", "/v1/containers", `{"name":"x","memory_limit":"4g"}`).id()
	s := h.call(200, "GET", "/v1/containers/"+id+"/stats", nil)
	for path, want := range map[string]float64{"memory": 4 << 30, "disk": 10 << 30} {
		if got := s.at(path, "limit_bytes"); got != want {
			t.Errorf("%s: got the limit %v, want %v", path, got, want)
		}
	}
	if s["object"] != "container.stats" || s["container_id"] != id || s.at("pids", "limit") != 512.0 ||
		s.at("egress", "refused") != 0.0 {
		t.Errorf("got %v", s)
	}
	h.call(400, "GET", "/v1/containers/"+id+"/stats?x=1", nil)
	if got := h.call(200, "GET", "/v1/containers/"+id+"/stats/history", nil); got["object"] != "list" {
		t.Errorf("the history is %v", got)
	}
	h.call(200, "DELETE", "/v1/containers/"+id, nil)
	h.call(404, "GET", "/v1/containers/"+id+"/stats", nil)
}
