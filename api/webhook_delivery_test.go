package api_test

import (
	"time"
)

// delivery ends a response in the background and returns the id of its delivery to an endpoint.
func (h *house) delivery(endpoint string) string {
	h.t.Helper()
	h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"x","background":true}`)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-tick.C {
		if list := h.call(200, "GET", "/v1/webhook_endpoints/"+endpoint+"/deliveries",
			nil); len(list["data"].([]any)) > 0 {
			return list.at("data", 0, "id").(string)
		}
	}
	h.t.Fatal("no delivery is listed")
	return ""
}
