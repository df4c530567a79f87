package api_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/store"
)

// storeNothing are the requests that are allowed while the project's storage is full, and
// why. All others that are not a GET or a DELETE are refused.
var storeNothing = map[string]string{
	"POST /v1/responses/{response}/cancel":                                 "ends what stores",
	"POST /v1/responses/input_tokens":                                      "counts",
	"POST /v1/responses/compact":                                           "the answer is the client's to keep",
	"POST /v1/threads/{thread}/runs/{run}/cancel":                          "ends what stores",
	"POST /v1/containers/{container}/exec":                                 "writes to the container's disk only",
	"POST /v1/containers/{container}/pause":                                "changes a status",
	"POST /v1/containers/{container}/resume":                               "changes a status",
	"POST /v1/containers/{container}/ports/{port}":                         "the link is not stored",
	"POST /v1/embeddings":                                                  "the answer is the client's to keep",
	"POST /v1/moderations":                                                 "the answer is the client's to keep",
	"POST /v1/uploads/{upload}/complete":                                   "its parts were counted",
	"POST /v1/batches/{batch}/cancel":                                      "ends what stores",
	"POST /v1/skills/{skill}":                                              "replaces a number",
	"POST /v1/uploads/{upload}/cancel":                                     "deletes what was stored",
	"POST /v1/webhook_endpoints/{webhook}/deliveries/{delivery}/redeliver": "sends what is stored",
	"POST /v1/organization/audit/verify":                                   "reads",
	"POST /v1/webhook_endpoints/{webhook}/rotate_secret":                   "replaces a secret",
	"POST /v1/vector_stores/{vector_store}/search":                         "results are not stored",
	"POST /v1/vector_stores/{vector_store}/file_batches/{batch}/cancel":    "changes a status",
	"POST /v1/end_users/{user}":                                            "replaces numbers",
	"POST /v1/end_user_settings":                                           "replaces one small object",
	"POST /v1/retention":                                                   "replaces one small object",
	"POST /v1/holds":                                                       "holds are small, and at most 1000",
	"POST /v1/organization/projects/{project}/holds":                       "holds are small, and at most 1000",
	"/v1/containers/{container}/guest/{path...}":                           "the container's disk is bounded",
	"/v1/containers/{container}/ports/{port}/{path...}":                    "the container's disk is bounded",
}

// askModel are the requests that the engine counts once for each response.
var askModel = map[string]string{
	"POST /v1/responses":                                       `{"model":"scripted","input":"x"}`,
	"POST /v1/responses/compact":                               `{"model":"scripted","input":"x"}`,
	"POST /v1/chat/completions":                                `{"model":"scripted","messages":[{"role":"user","content":"x"}]}`,
	"POST /v1/embeddings":                                      `{"model":"scripted","input":"x"}`,
	"POST /v1/moderations":                                     `{"model":"scripted","input":"x"}`,
	"POST /v1/responses/{response}/replay":                     "",
	"POST /v1/threads/runs":                                    "",
	"POST /v1/threads/{thread}/runs":                           "",
	"POST /v1/threads/{thread}/runs/{run}/submit_tool_outputs": "",
}

// Every route that creates or changes objects is limited by its project's storage and rate,
// unless it is listed above.
func TestEveryWriteIsBounded(t *testing.T) {
	t.Parallel()
	h := limited(t, map[berth.ProjectID]berth.Limits{"proj_full": {StorageBytes: number(0)},
		"proj_slow": {RequestsPerMinute: number(0)}})
	h.key("sk-full", "proj_full")
	h.key("sk-slow", "proj_slow")
	refused := func(key, pattern, body, code string) {
		t.Helper()
		method, path, _ := strings.Cut(pattern, " ")
		path = regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, "x")
		h.token = key
		resp := h.send(t.Context(), method, path, body)
		var got struct{ Error struct{ Code, Type string } }
		err := json.NewDecoder(resp.Body).Decode(&got)
		if resp.StatusCode != http.StatusTooManyRequests || err != nil || got.Error.Code != code ||
			resp.Header.Get("x-should-retry") != "false" {
			t.Errorf("%s: got %d %v %v, want 429 %s", pattern, resp.StatusCode, got, resp.Header, code)
		}
	}
	for _, pattern := range api.Routes() {
		if strings.HasPrefix(pattern, "GET ") || strings.HasPrefix(pattern, "DELETE ") || api.ForAdmin(pattern) {
			continue
		}
		if storeNothing[pattern] == "" {
			refused("sk-full", pattern, `{}`, "insufficient_quota")
		}
		body, asked := askModel[pattern]
		switch {
		case !strings.Contains(pattern, " "): // through a container
		case !asked:
			refused("sk-slow", pattern, `{}`, "rate_limit_exceeded")
		case body != "":
			refused("sk-slow", pattern, body, "rate_limit_exceeded")
		}
	}
}

// Stored objects of any kind count toward a project's storage until they are deleted.
func TestStorageBoundsConversationsThreadsAndResponses(t *testing.T) {
	t.Parallel()
	h := limited(t, map[berth.ProjectID]berth.Limits{"": {StorageBytes: number(1 << 20)}})
	h.key("sk-a", "proj_a")
	text := strings.Repeat("x", 200<<10)
	item := `{"type":"message","role":"user","content":"` + text + `"}`
	full := func(path, body string) {
		t.Helper()
		for range 20 {
			resp := h.send(t.Context(), "POST", path, body)
			if resp.StatusCode == 429 {
				return
			}
			if resp.StatusCode != 200 {
				t.Fatalf("%s: got %d", path, resp.StatusCode)
			}
		}
		t.Errorf("%s: 20 times 200 KB fit into 1 MB", path)
	}
	stored := func() int64 {
		t.Helper()
		n, err := h.store.StoredBytes(t.Context(), "proj_a")
		check(t, err)
		return n
	}
	// The events of a response count in full until they are packed. So the refusal may come after one
	// response, whose request and answer remain when its events are packed.
	const packed = 256 << 10
	for _, tt := range []struct {
		path, body string
		least      int64 // stored when a request is refused, and later
	}{
		{"/v1/conversations", `{"items":[` + item + `]}`, 768 << 10},
		{"/v1/threads", `{"messages":[{"role":"user","content":"` + text + `"}]}`, 768 << 10},
		{"/v1/responses", `{"model":"scripted","input":"` + text + `"}`, packed},
		{"/v1/chat/completions", `{"model":"scripted","store":true,"messages":[{"role":"user","content":"` + text +
			`"}]}`, packed},
		{"/v1/assistants", `{"model":"scripted","instructions":"` + text + `"}`, 768 << 10},
	} {
		full(tt.path, tt.body)
		// The end of a response is always stored.
		if n := stored(); n < tt.least || n > 4<<20 {
			t.Errorf("%s: stored %d bytes of 1 MB", tt.path, n)
		}
		ids, err := h.store.ProjectResponses(t.Context(), "proj_a", 1000)
		check(t, err)
		for _, id := range ids {
			// of a completion, which is not stored
			if err := h.store.DeleteResponse(t.Context(), "proj_a", id); !errors.Is(err, store.ErrNotFound) {
				check(t, err)
			}
		}
		keys, err := h.store.ProjectObjects(t.Context(), "proj_a", 1000)
		check(t, err)
		for _, key := range keys {
			check(t, h.store.DeleteObject(t.Context(), "proj_a", key))
		}
		eventually(t, tt.path+": nothing counts after all was deleted", func() bool { return stored() == 0 })
	}
	h.call(200, "POST", "/v1/conversations", `{}`)
}

// A response in progress ends when its project's storage is full.
func TestRunningResponseEndsWhenStorageIsFull(t *testing.T) {
	t.Parallel()
	h := limited(t, map[berth.ProjectID]berth.Limits{"": {StorageBytes: number(1 << 20)}})
	h.key("sk-a", "proj_a")
	id := h.call(200, "POST", "/v1/responses", `{"model":"vendor/fed","background":true,"input":"x"}`).id()
	done := make(chan struct{})
	go func() {
		random := make([]byte, 75<<10) // events are stored compressed: text that repeats takes little
		for {
			_, _ = rand.Read(random)
			select {
			case h.fed.words <- base64.StdEncoding.EncodeToString(random):
			case <-done:
				return
			}
		}
	}()
	defer close(done)
	events := h.rest(h.stream(t.Context(), "GET", "/v1/responses/"+id+"?stream=true", nil))
	if last := events[len(events)-1]; last.Type != "response.failed" || !strings.Contains(string(last.Data),
		"insufficient_quota") {
		t.Errorf("got %d events, the last %.300s", len(events), last.Data)
	}
	if got := h.call(200, "GET", "/v1/responses/"+id, nil); got["status"] != "failed" {
		t.Errorf("got %v", got["status"])
	}
	h.call(429, "POST", "/v1/responses", `{"model":"scripted","input":"x"}`)
	h.call(200, "DELETE", "/v1/responses/"+id, nil)
	h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"x"}`)
}
