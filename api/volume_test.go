package api_test

import (
	"testing"
)

// A volume is created, mounted, protected while it is in use, and deleted.
func TestVolumes(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	v := h.call(200, "POST", "/v1/volumes", `{"name":"data","max_bytes":67108864}`)
	if v.at("object") != "volume" || v.at("expires_at") != nil || v.at("max_bytes") != 67108864. {
		t.Errorf("POST /v1/volumes: got %v", v)
	}
	h.call(400, "POST", "/v1/volumes", `{"name":"data"}`)
	h.call(400, "POST", "/v1/volumes", `{"name":"Data"}`)
	h.call(400, "POST", "/v1/volumes", `{"name":"d","max_bytes":1}`)
	if list := h.call(200, "GET", "/v1/volumes", nil); list.at("data", 0, "id") != v.id() ||
		list.at("has_more") != false {
		t.Errorf("GET /v1/volumes: got %v", list)
	}

	c := h.call(200, "POST", "/v1/containers",
		`{"name":"x","berth":{"volumes":[{"name":"data","path":"/mnt/volumes/d","read_only":true}]}}`)
	if m := c.at("berth", "volumes", 0); m.(map[string]any)["volume_id"] != v.id() ||
		m.(map[string]any)["path"] != "/mnt/volumes/d" {
		t.Errorf("the container mounts %v", m)
	}
	h.call(404, "POST", "/v1/containers", `{"name":"x","berth":{"volumes":[{"name":"other"}]}}`)
	h.call(400, "POST", "/v1/containers", `{"name":"x","berth":{"volumes":[{"name":"data","path":"/etc"}]}}`)
	h.call(400, "POST", "/v1/containers", `{"name":"x","berth":{"volumes":[{"name":"data","owner":"me"}]}}`)

	h.call(409, "DELETE", "/v1/volumes/"+v.id(), nil)
	h.call(200, "DELETE", "/v1/containers/"+c.id(), nil)
	h.call(200, "DELETE", "/v1/volumes/"+v.id(), nil)
	h.call(404, "GET", "/v1/volumes/"+v.id(), nil)
}
