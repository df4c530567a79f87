package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

// A held object stays as it was, and the error of its deletion names the hold.
func TestHeld(t *testing.T) {
	t.Parallel()
	h, as := newChats(t, nil)
	ann := as("proj_a", "ann", "chat-1")
	h.token = "sk-proj_a"
	_, container := ann.prints("echo 41 > n")
	_, response := ann.send("POST", "/v1/responses", `{"model":"scripted","input":"x"}`)
	_, conversation := ann.send("POST", "/v1/conversations", `{"items":[{"type":"message","role":"user","content":"x"}]}`)
	item := h.call(200, "GET", "/v1/conversations/"+conversation.id()+"/items", nil).at("data", 0, "id")
	_, completion := ann.send("POST", "/v1/chat/completions", `{"model":"scripted","store":true,"messages":[{"role":"user","content":"x"}]}`)
	_, snapshot := ann.send("POST", fmt.Sprintf("/v1/containers/%v/snapshots", container), `{"name":"s"}`)
	file := h.newFile()
	store := h.call(200, "POST", "/v1/vector_stores", `{"name":"x"}`).id()
	prompt := h.call(200, "POST", "/v1/prompts", `{"name":"x","template":{"input":[{"role":"user","content":"x"}]}}`).id()
	id := string(berth.NewEndUserID("proj_a", "ann", ""))
	paths := []string{fmt.Sprintf("/v1/containers/%v", container), "/v1/responses/" + response.id(),
		"/v1/conversations/" + conversation.id(), fmt.Sprintf("/v1/conversations/%s/items/%v", conversation.id(), item),
		"/v1/chat/completions/" + completion.id(), "/v1/snapshots/" + snapshot.id(), "/v1/files/" + file,
		"/v1/vector_stores/" + store, "/v1/prompts/" + prompt, "/v1/end_users/" + id}
	refused := func(hold string, paths ...string) {
		t.Helper()
		for _, path := range paths {
			o := h.call(409, "DELETE", path, nil)
			if o.at("error", "code") != "legal_hold" || !strings.Contains(fmt.Sprint(o.at("error", "message")), hold) {
				t.Errorf("DELETE %s: got %v", path, o)
			}
			h.call(200, "GET", path, nil)
		}
	}
	hold := h.call(200, "POST", "/v1/holds", `{"reason":"a case"}`)
	if hold["by"] != "project" || hold["reason"] != "a case" || hold["project_id"] != "proj_a" {
		t.Errorf("the hold is %v", hold)
	}
	refused(hold.id(), paths...)
	if out, again := ann.prints("cat n"); out != "41\n" || again != container {
		t.Errorf("the held container is not as it was: %q in %v", out, again)
	}
	h.call(200, "DELETE", "/v1/holds/"+hold.id(), nil)

	// The hold of an end user holds what belongs to the user.
	hold = h.call(200, "POST", "/v1/holds", `{"reason":"a case","end_user":"`+id+`"}`)
	refused(hold.id(), append(append([]string{}, paths[:6]...), paths[9])...)
	for _, path := range paths[6:9] {
		h.call(200, "DELETE", path, nil)
	}
	if o := h.call(200, "GET", "/v1/holds", nil); o.at("data", 0, "id") != hold.id() {
		t.Errorf("the list has %v", o)
	}
	h.call(200, "DELETE", "/v1/holds/"+hold.id(), nil)
	h.call(404, "DELETE", "/v1/holds/"+hold.id(), nil)
	h.call(200, "DELETE", "/v1/end_users/"+id, nil)
	for _, bad := range []string{`{}`, `{"reason":""}`, `{"reason":"x","end_user":"a","object_id":"b"}`, `{"reason":"x","more":1}`,
		`{"reason":"` + strings.Repeat("x", 513) + `"}`} {
		h.call(400, "POST", "/v1/holds", bad)
	}
}

// The organization holds projects. The project sees that and cannot release it, and cannot be archived.
func TestHeldByOrganization(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-admin", berth.AdminProject)
	h.key("sk-a", "proj_a")
	h.token = "sk-a"
	file := h.newFile()
	h.call(403, "POST", "/v1/organization/projects/proj_a/holds", `{"reason":"x"}`)
	h.token = "sk-admin"
	h.call(404, "POST", "/v1/organization/projects/proj_x/holds", `{"reason":"x"}`)
	hold := h.call(200, "POST", "/v1/organization/projects/proj_a/holds", `{"reason":"a case","object_id":"`+file+`"}`).id()
	h.call(409, "POST", "/v1/organization/projects/proj_a/archive", nil)
	h.token = "sk-a"
	if o := h.call(200, "GET", "/v1/holds/"+hold, nil); o["by"] != "organization" || o["object_id"] != file {
		t.Errorf("the project sees %v", o)
	}
	h.call(403, "DELETE", "/v1/holds/"+hold, nil)
	h.call(409, "DELETE", "/v1/files/"+file, nil)
	h.token = "sk-admin"
	h.call(200, "DELETE", "/v1/organization/projects/proj_a/holds/"+hold, nil)
	h.call(200, "POST", "/v1/organization/projects/proj_a/archive", nil)
}

// A project that stores nothing refuses no request that asks for it, as at OpenAI, and says so in the answer.
func TestStoreNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	h.token = "sk-a"
	if o := h.call(200, "GET", "/v1/retention", nil); o["store"] != true {
		t.Errorf("before, the retention is %v", o)
	}
	h.call(200, "POST", "/v1/retention", `{"store":false}`)
	for _, field := range []string{"", `,"store":true`, `,"store":false`} {
		o := h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"x"`+field+`}`)
		if o["store"] != false {
			t.Errorf("%s: the response says store: %v", field, o["store"])
		}
		h.call(404, "GET", "/v1/responses/"+o.id(), nil)
		h.call(400, "POST", "/v1/responses", `{"model":"scripted","input":"x","previous_response_id":"`+o.id()+`"}`)
	}
	o := h.call(200, "POST", "/v1/chat/completions", `{"model":"scripted","store":true,"messages":[{"role":"user","content":"x"}]}`)
	h.call(404, "GET", "/v1/chat/completions/"+o.id(), nil)
	conversation := h.call(200, "POST", "/v1/conversations", `{}`).id()
	h.call(400, "POST", "/v1/responses", `{"model":"scripted","input":"x","conversation":"`+conversation+`"}`)
	h.call(200, "POST", "/v1/retention", `{}`)
	if o := h.call(200, "POST", "/v1/responses", `{"model":"scripted","input":"x"}`); o["store"] != true {
		t.Errorf("afterwards the response says store: %v", o["store"])
	}
	for _, bad := range []string{`{"store":1}`, `{"expire_after":{"responses":0}}`, `{"expire_after":{"x":1}}`,
		`{"expire_after":{"audit":1}}`, `{"expire_after":{"traces":9999999}}`} {
		h.call(400, "POST", "/v1/retention", bad)
	}
}

// The expiry of a file is never after the time that its project allows.
func TestFileNotLonger(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-a", "proj_a")
	h.token = "sk-a"
	h.call(200, "POST", "/v1/retention", `{"expire_after":{"files":7200}}`)
	for after, want := range map[string]int64{"": 7200, "3600": 3600, "86400": 7200} {
		fields := []string{"purpose", "user_data"}
		if after != "" {
			fields = append(fields, "expires_after[anchor]", "created_at", "expires_after[seconds]", after)
		}
		f := h.newFileOf(fields...)
		if life := int64(f["expires_at"].(float64) - f["created_at"].(float64)); life != want {
			t.Errorf("expires_after %q: the file lives %v", after, time.Duration(life)*time.Second)
		}
	}
}

// newFile uploads a file and returns its id.
func (h *house) newFile() string {
	h.t.Helper()
	return h.newFileOf("purpose", "user_data").id()
}

// newFileOf uploads a file with fields.
func (h *house) newFileOf(fields ...string) (f object) {
	h.t.Helper()
	form, kind := upload("a.txt", strings.NewReader("a"), fields...)
	req, err := http.NewRequestWithContext(h.t.Context(), "POST", h.url+"/v1/files", form)
	check(h.t, err)
	req.Header.Set("Authorization", "Bearer "+h.token)
	req.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(req)
	check(h.t, err)
	defer resp.Body.Close()
	check(h.t, json.NewDecoder(resp.Body).Decode(&f))
	return f
}
