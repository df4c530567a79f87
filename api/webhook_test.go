package api_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/webhook"
)

func TestWebhookEndpoints(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	made := h.call(200, "POST", "/v1/webhook_endpoints",
		`{"name":"x","url":"https://hooks.example/a","event_types":["response.completed"]}`)
	secret, _ := made["signing_secret"].(string)
	if !strings.HasPrefix(secret, "whsec_") || !strings.HasPrefix(made.id(), "whe_") ||
		made["object"] != "webhook_endpoint" {
		t.Errorf("got %v", made)
	}
	path := "/v1/webhook_endpoints/" + made.id()
	delete(made, "signing_secret")
	if diff := cmp.Diff(made, h.call(200, "GET", path, nil)); diff != "" {
		t.Errorf("(-made +got):\n%s", diff)
	}
	changed := h.call(200, "POST", path, `{"name":"y","event_types":["response.failed","response.completed"]}`)
	if changed["name"] != "y" || changed["url"] != "https://hooks.example/a" ||
		len(changed["event_types"].([]any)) != 2 {
		t.Errorf("got %v", changed)
	}
	h.call(200, "POST", path, nil) // changes no field
	second := h.call(200, "POST", "/v1/webhook_endpoints",
		`{"name":"z","url":"https://hooks.example/b","event_types":["response.completed"]}`)
	list := h.call(200, "GET", "/v1/webhook_endpoints?limit=1", nil)
	if list.at("data", 0, "id") != second.id() || list["has_more"] != true ||
		list.at("data", 0, "signing_secret") != nil {
		t.Errorf("got %v, want the newest first", list)
	}
	if rest := h.call(200, "GET", "/v1/webhook_endpoints?after="+second.id(), nil); rest.at("data", 0,
		"id") != made.id() || rest["has_more"] != false {
		t.Errorf("got %v", rest)
	}
	if renewed := h.call(200, "POST", path+"/rotate_secret",
		`{"keep_old_secret_active_for_24_hours":true}`); renewed["signing_secret"] == secret ||
		renewed["signing_secret"] == nil {
		t.Errorf("got %v", renewed)
	}
	h.call(200, "POST", path+"/rotate_secret", nil)
	types := h.call(200, "GET", "/v1/webhook_event_types", nil)
	if len(types["data"].([]any)) != len(webhook.EventTypes) {
		t.Errorf("got %v", types)
	}
	for body, param := range map[string]string{
		`{"url":"https://a.example","event_types":["response.completed"]}`:                            "name",
		`{"name":"x","event_types":["response.completed"]}`:                                           "url",
		`{"name":"x","url":"https://a.example"}`:                                                      "event_types",
		`{"name":"x","url":"http://a.example","event_types":["response.completed"]}`:                  "url",
		`{"name":"x","url":"https://127.0.0.1:8080/","event_types":["response.completed"]}`:           "url",
		`{"name":"x","url":"https://a.example:65536/","event_types":["response.completed"]}`:          "url",
		`{"name":"x","url":"https://a.example","event_types":["response.created"]}`:                   "event_types[0]",
		`{"name":"x","url":"https://a.example","event_types":[]}`:                                     "event_types",
		`{"name":"x","url":"https://a.example","event_types":["response.completed"],"anywhere":true}`: "anywhere",
	} {
		if e := h.call(400, "POST", "/v1/webhook_endpoints", body); e.at("error", "param") != param {
			t.Errorf("%s: got %v, want an error about %s", body, e, param)
		}
	}
	// What that name resolves to, like all others of the server's own network, is not reachable.
	inside := h.call(200, "POST", "/v1/webhook_endpoints",
		`{"name":"x","url":"https://localhost:1/","event_types":["response.completed"]}`)
	if e := h.call(400, "POST", "/v1/webhook_endpoints/"+inside.id()+"/test",
		`{"event_type":"response.completed"}`); !strings.Contains(e.at("error", "message").(string),
		"could not be reached") {
		t.Errorf("got %v", e)
	}
	if e := h.call(400, "POST", path+"/test", `{"event_type":"response.created"}`); e.at("error",
		"param") != "event_type" {
		t.Errorf("got %v", e)
	}
	if gone := h.call(200, "DELETE", path, nil); gone["deleted"] != true ||
		gone["object"] != "webhook_endpoint.deleted" {
		t.Errorf("got %v", gone)
	}
	h.call(404, "GET", path, nil)
}

// The delivery of a background response's end exists when the client can see the end.
func TestWebhookDelivery(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.call(200, "POST", "/v1/webhook_endpoints",
		`{"name":"x","url":"https://hooks.example/a","event_types":["response.completed"]}`)
	r := h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"x","background":true,"stream":false}`)
	h.rest(h.stream(t.Context(), "GET", "/v1/responses/"+r.id()+"?stream=true", nil))
	due, err := h.store.ExpiredObjects(t.Context(), webhook.KindDelivery, time.Now(), 10)
	if err != nil || len(due) != 1 {
		t.Errorf("got %d deliveries, %v, want 1", len(due), err)
	}
}

// The delivery of a batch's end follows the end.
func TestWebhookOfBatch(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.call(200, "POST", "/v1/webhook_endpoints",
		`{"name":"x","url":"https://hooks.example/a","event_types":["batch.completed","batch.failed"]}`)
	client := h.openai()
	for _, line := range []string{`{"custom_id":"1","method":"POST","url":"/v1/responses","body":{"model":"scripted","input":"x"}}`,
		`{}`} {
		h.call(200, "POST", "/v1/batches", `{"input_file_id":"`+h.batchFile(client,
			line)+`","endpoint":"/v1/responses","completion_window":"24h"}`)
	}
	var types []string
	for deadline := time.Now().Add(20 * time.Second); len(types) < 2 && time.Now().Before(deadline); {
		types = nil
		due, err := h.store.ExpiredObjects(t.Context(), webhook.KindDelivery, time.Now(), 10)
		check(t, err)
		for _, ref := range due {
			o, err := h.store.GetObject(t.Context(), ref.Project, ref.ObjectKey)
			check(t, err)
			var d webhook.Delivery
			check(t, json.Unmarshal(o.Body, &d))
			types = append(types, string(d.Type))
		}
	}
	slices.Sort(types)
	if diff := cmp.Diff([]string{"batch.completed", "batch.failed"}, types); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
}
