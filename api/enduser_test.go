package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/enduser"
)

// A visitor is a user of a chat application, which sends requests for it.
type visitor struct {
	h                 *house
	token, user, chat string
}

// newChats returns a house whose projects a and b have end users, and a function that returns a user of one.
func newChats(t *testing.T, change func(*api.Options)) (*house, func(p berth.ProjectID, user, chat string) visitor) {
	h := newHouse(t, change)
	for _, p := range []berth.ProjectID{"proj_a", "proj_b"} {
		h.key("sk-"+string(p), p)
		h.call(200, "POST", "/v1/end_user_settings", `{"enabled":true}`)
	}
	o, users := h.opts, h.opts.Rooms.EndUsers
	users.Snapshots, users.Removers = o.Snapshots.List, enduser.Remove{
		Containers: o.Containers.Delete, Snapshots: o.Snapshots.Delete, Files: o.Files.Delete, Responses: o.Engine.Delete,
		Conversations: o.Rooms.Conversations.Delete, Completions: o.Rooms.Completions.Delete,
		Traces: o.Rooms.Traces.Delete}.Removers()
	return h, func(p berth.ProjectID, user, chat string) visitor { return visitor{h, "sk-" + string(p), user, chat} }
}

// send sends a request of the application for the user.
func (v visitor) send(method, path, body string) (int, object) {
	v.h.t.Helper()
	req, err := http.NewRequestWithContext(v.h.t.Context(), method, v.h.url+path, strings.NewReader(body))
	check(v.h.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+v.token)
	if v.user != "" {
		req.Header.Set("X-User", v.user)
	}
	if v.chat != "" {
		req.Header.Set("X-Chat", v.chat)
	}
	resp, err := http.DefaultClient.Do(req)
	check(v.h.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	check(v.h.t, err)
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		v.h.t.Errorf("%s %s: got %d %s", method, path, resp.StatusCode, raw)
	}
	return resp.StatusCode, o
}

// run runs a command by a request of the Responses API that names no container, with further fields.
func (v visitor) run(command string, fields ...string) (int, object) {
	v.h.t.Helper()
	input, _ := json.Marshal("```sh\n" + command + "\n```")
	return v.send("POST", "/v1/responses", fmt.Sprintf(`{"model":"scripted","store":false,"input":%s,"tools":[{"type":"shell"}]%s}`,
		input, strings.Join(fields, "")))
}

// prints is what a command printed, and the container in which it ran.
func (v visitor) prints(command string, fields ...string) (stdout, container any) {
	v.h.t.Helper()
	status, o := v.run(command, fields...)
	if status != 200 {
		v.h.t.Errorf("%s: got %d %v", command, status, o)
	}
	return shellOutput(o)
}

// Stateless requests of a chat have the same container, and no other request has it.
func TestEndUserComputer(t *testing.T) {
	t.Parallel()
	h, as := newChats(t, nil)
	ann := as("proj_a", "ann", "chat-1")
	_, first := ann.prints("echo 41 > n")
	if out, again := ann.prints("cat n"); out != "41\n" || again != first {
		t.Errorf("the second request of the chat got %q in %v, want the file of the first in %v", out, again, first)
	}
	for name, other := range map[string]visitor{
		"another chat": as("proj_a", "ann", "chat-2"), "another user": as("proj_a", "bob", "chat-1"),
		"another project": as("proj_b", "ann", "chat-1"), "no user": as("proj_a", "", "chat-1"),
		"no chat": as("proj_a", "ann", ""), "nobody": as("proj_a", "", ""),
		"a longer chat": as("proj_a", "ann", "chat-1%20"), "another case": as("proj_a", "ann", "Chat-1"),
	} {
		if out, container := other.prints("cat n 2>/dev/null || echo none"); out != "none\n" || container == first {
			t.Errorf("%s got %q in %v", name, out, container)
		}
	}

	// A user names the container or the response of another.
	bob := as("proj_a", "bob", "chat-9")
	ref := fmt.Sprintf(`{"model":"scripted","input":"x","tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"%v"}}]}`, first)
	if status, o := bob.send("POST", "/v1/responses", ref); status != 404 {
		t.Errorf("the container of another user: got %d %v", status, o)
	}
	if status, o := ann.send("POST", "/v1/responses", ref); status != 200 {
		t.Errorf("the user's own container: got %d %v", status, o)
	}
	_, kept := ann.send("POST", "/v1/responses", `{"model":"scripted","input":"x"}`)
	next := fmt.Sprintf(`{"model":"scripted","input":"x","previous_response_id":"%s"}`, kept.id())
	if status, o := bob.send("POST", "/v1/responses", next); status != 400 ||
		o.at("error", "code") != "previous_response_not_found" {
		t.Errorf("the response of another user: got %d %v", status, o)
	}
	if status, o := ann.send("POST", "/v1/responses", next); status != 200 {
		t.Errorf("the user's own response: got %d %v", status, o)
	}
	_, snapshot := ann.send("POST", fmt.Sprintf("/v1/containers/%v/snapshots", first), `{"name":"s"}`)
	from := fmt.Sprintf(`{"model":"scripted","input":"x","tools":[{"type":"shell","environment":{"type":"container_auto","berth":{"snapshot_id":"%s"}}}]}`, snapshot.id())
	if status, o := bob.send("POST", "/v1/responses", from); status < 400 {
		t.Errorf("the snapshot of another user: got %d %v", status, o)
	}

	h.token = "sk-proj_a"
	c := h.call(200, "GET", fmt.Sprintf("/v1/containers/%v", first), nil)
	if c.at("berth", "end_user") != string(berth.NewEndUserID("proj_a", "ann", "")) {
		t.Errorf("the container's end user is %v", c.at("berth", "end_user"))
	}
}

// The chat of a request is known by headers and fields of all three APIs.
func TestEndUserDoors(t *testing.T) {
	t.Parallel()
	_, as := newChats(t, nil)
	user := as("proj_a", "ann", "chat-1")
	_, want := user.prints("echo 41 > n")
	input := "```sh\\ncat n\\n```"
	for name, body := range map[string]string{
		"/v1/chat/completions": `{"model":"scripted","messages":[{"role":"user","content":"` + input + `"}],"tools":[{"type":"shell"}]}`,
		"/v1/messages":         `{"model":"scripted","max_tokens":99,"messages":[{"role":"user","content":"` + input + `"}],"tools":[{"type":"code_execution_20250825","name":"code_execution"}]}`,
	} {
		if status, o := user.send("POST", name, body); status != 200 || !strings.Contains(fmt.Sprint(o), "41") {
			t.Errorf("%s: got %d %v, want the file of the chat", name, status, o)
		}
	}
	plain := as("proj_a", "", "")
	for name, fields := range map[string]string{
		"user and prompt_cache_key": `,"user":"ann","prompt_cache_key":"chat-1"`,
		"safety_identifier":         `,"safety_identifier":"ann","user":"x","prompt_cache_key":"chat-1"`,
		"metadata":                  `,"metadata":{"user":"ann"},"prompt_cache_key":"chat-1"`,
	} {
		if out, container := plain.prints("cat n", fields); out != "41\n" || container != want {
			t.Errorf("%s: got %q in %v, want the container %v", name, out, container, want)
		}
	}
	chat := `{"model":"scripted","messages":[{"role":"user","content":"` + input + `"}],"tools":[{"type":"shell"}],` +
		`"metadata":{"user":"ann"},"prompt_cache_key":"chat-1"}`
	if status, o := plain.send("POST", "/v1/chat/completions", chat); status != 200 || !strings.Contains(fmt.Sprint(o), "41") {
		t.Errorf("fields of Chat Completions: got %d %v", status, o)
	}
	message := `{"model":"scripted","max_tokens":99,"metadata":{"user_id":"ann"},"messages":[{"role":"user","content":"` + input +
		`"}],"tools":[{"type":"code_execution_20250825","name":"code_execution"}]}`
	if status, o := as("proj_a", "", "chat-1").send("POST", "/v1/messages", message); status != 200 ||
		!strings.Contains(fmt.Sprint(o), "41") {
		t.Errorf("metadata.user_id of Messages: got %d %v", status, o)
	}
}

// Concurrent first requests of a chat create one container.
func TestEndUserConcurrentFirst(t *testing.T) {
	t.Parallel()
	h, as := newChats(t, nil)
	ann := as("proj_a", "ann", "chat-1")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if status, o := ann.run("echo x >> n"); status != 200 {
				t.Errorf("got %d %v", status, o)
			}
		})
	}
	wg.Wait()
	h.token = "sk-proj_a"
	if list := h.call(200, "GET", "/v1/containers", nil)["data"].([]any); len(list) != 1 {
		t.Errorf("%d containers exist, want 1", len(list))
	}
	if out, _ := ann.prints("wc -l < n"); out != "8\n" {
		t.Errorf("the file has %q lines, want 8", out)
	}
}

// A container that expired leaves a snapshot, from which the chat continues.
func TestEndUserExpiry(t *testing.T) {
	t.Parallel()
	h, as := newChats(t, nil)
	ann := as("proj_a", "ann", "chat-1")
	_, first := ann.prints("echo 41 > n")
	h.token = "sk-proj_a"
	c := h.call(200, "GET", fmt.Sprintf("/v1/containers/%v", first), nil)
	if c.at("berth", "on_expiry") != "snapshot" {
		t.Errorf("on expiry, the container of a chat does %v", c.at("berth", "on_expiry"))
	}
	h.call(200, "DELETE", fmt.Sprintf("/v1/containers/%v", first), nil)
	if out, second := ann.prints("cat n 2>/dev/null || echo none"); out != "none\n" || second == first {
		t.Errorf("after the container was deleted: got %q in %v", out, second)
	}
}

func TestEndUserLimits(t *testing.T) {
	t.Parallel()
	h, as := newChats(t, nil)
	h.token = "sk-proj_a"
	h.call(200, "POST", "/v1/end_user_settings", `{"enabled":true,"limits":{"containers":1}}`)
	ann := as("proj_a", "ann", "chat-1")
	ann.prints("true")
	if status, o := as("proj_a", "ann", "chat-2").run("true"); status != 429 {
		t.Errorf("a second container: got %d %v, want a refusal", status, o)
	}
	as("proj_a", "bob", "chat-1").prints("true")
	id := string(berth.NewEndUserID("proj_a", "ann", ""))
	h.call(200, "POST", "/v1/end_users/"+id, `{"limits":{"containers":2,"cost_per_month":0}}`)
	if status, o := as("proj_a", "ann", "chat-2").run("true"); status != 429 || o.at("error", "code") != "insufficient_quota" {
		t.Errorf("without money: got %d %v, want a refusal", status, o)
	}
	h.call(200, "POST", "/v1/end_users/"+id, `{"limits":{"containers":2}}`)
	as("proj_a", "ann", "chat-2").prints("true")
	u := h.call(200, "GET", "/v1/end_users/"+id+"/usage", nil)
	if u["responses"] != 2.0 || u["containers"] != 2.0 || u["input_tokens"].(float64) == 0 {
		t.Errorf("the usage is %v", u)
	}
	for _, query := range []string{"?month=2026", "?month=2026-13", "?month=x", "?more=1"} {
		h.call(400, "GET", "/v1/end_users/"+id+"/usage"+query, nil)
	}
	h.call(400, "POST", "/v1/end_users/"+id, `{"limits":{"containers":-2}}`)
	h.call(400, "POST", "/v1/end_user_settings", `{"computer":"all"}`)
}

// What a user had is gone, and nothing else.
func TestEndUserForgotten(t *testing.T) {
	t.Parallel()
	h, as := newChats(t, nil)
	ann, bob := as("proj_a", "ann", "chat-1"), as("proj_a", "bob", "chat-1")
	h.token = "sk-proj_a"
	had := map[visitor][]string{}
	for _, v := range []visitor{ann, bob} {
		_, container := v.prints("echo 41 > n")
		created := func(method, path, body string) string {
			status, o := v.send(method, path, body)
			if status != 200 {
				t.Fatalf("%s: got %d %v", path, status, o)
			}
			return o.id()
		}
		response := created("POST", "/v1/responses", `{"model":"scripted","input":"x"}`)
		completion := created("POST", "/v1/chat/completions", `{"model":"scripted","store":true,"messages":[{"role":"user","content":"x"}]}`)
		conversation := created("POST", "/v1/conversations", `{}`)
		_, snapshot := v.send("POST", fmt.Sprintf("/v1/containers/%v/snapshots", container), `{"name":"s"}`)
		trace := fmt.Sprintf("trace_%032x", v.user)
		req, err := http.NewRequest("POST", h.url+"/v1/traces/ingest", strings.NewReader(`{"data":[{"object":"trace","id":"`+trace+`"}]}`))
		check(t, err)
		req.Header.Set("Authorization", "Bearer "+v.token)
		req.Header.Set("X-User", v.user)
		resp, err := http.DefaultClient.Do(req)
		check(t, err)
		resp.Body.Close()
		form, kind := upload("a.txt", strings.NewReader("a"), "purpose", "user_data")
		req, err = http.NewRequest("POST", h.url+"/v1/files", form)
		check(t, err)
		req.Header.Set("Authorization", "Bearer "+v.token)
		req.Header.Set("X-User", v.user)
		req.Header.Set("Content-Type", kind)
		resp, err = http.DefaultClient.Do(req)
		check(t, err)
		var file object
		check(t, json.NewDecoder(resp.Body).Decode(&file))
		resp.Body.Close()
		had[v] = []string{fmt.Sprintf("/v1/containers/%v", container), "/v1/responses/" + response, "/v1/files/" + file.id(),
			"/v1/chat/completions/" + completion, "/v1/conversations/" + conversation, "/v1/snapshots/" + snapshot.id(),
			"/v1/traces/" + trace}
		for _, path := range had[v] {
			h.call(200, "GET", path, nil)
		}
	}
	id := string(berth.NewEndUserID("proj_a", "ann", ""))
	var owned []string
	for query := "?limit=4"; query != ""; {
		page := h.call(200, "GET", "/v1/end_users/"+id+"/objects"+query, nil)
		for _, o := range page["data"].([]any) {
			one := o.(map[string]any)
			owned = append(owned, map[any]string{"chat.completion": "/v1/chat/completions/"}[one["type"]])
			if last := len(owned) - 1; owned[last] == "" {
				owned[last] = fmt.Sprintf("/v1/%vs/", one["type"])
			}
			owned[len(owned)-1] += one["id"].(string)
		}
		query = ""
		if page["has_more"] == true {
			query = "?limit=4&after=" + url.QueryEscape(page["last_id"].(string))
		}
	}
	if diff := cmp.Diff(slices.DeleteFunc(slices.Clone(had[ann]), func(path string) bool {
		return strings.HasPrefix(path, "/v1/snapshots/") // it names the user itself
	}), owned, cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
		t.Errorf("objects of the user (-want +got):\n%s", diff)
	}
	done := h.call(200, "DELETE", "/v1/end_users/"+id, nil)
	want := map[string]any{"container": 1.0, "response": 1.0, "file": 1.0, "chat.completion": 1.0, "conversation": 1.0,
		"snapshot": 1.0, "trace": 1.0}
	if diff := cmp.Diff(want, done["objects"]); diff != "" || done["deleted"] != true {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	for _, path := range had[ann] {
		if resp := h.send(t.Context(), "GET", path, nil); resp.StatusCode != 404 {
			t.Errorf("GET %s: got %d, want 404", path, resp.StatusCode)
		}
	}
	for _, path := range had[bob] {
		h.call(200, "GET", path, nil)
	}
	h.call(404, "GET", "/v1/end_users/"+id, nil)
	h.call(404, "DELETE", "/v1/end_users/"+id, nil)
	if list := h.call(200, "GET", "/v1/end_users", nil)["data"].([]any); len(list) != 1 {
		t.Errorf("the list has %v, want one user", list)
	}

	// The user returns without the file.
	if out, _ := ann.prints("cat n 2>/dev/null || echo none"); out != "none\n" {
		t.Errorf("after the deletion, the chat has %q", out)
	}
}

// Names of users and chats mean nothing while end users are off, and those that are no names are refused while they are
// on.
func TestEndUserHostile(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-proj_a", berth.DefaultProject)
	ann := visitor{h, "sk-proj_a", "ann", "chat-1"}
	_, first := ann.prints("true")
	if _, second := ann.prints("true"); first == second {
		t.Error("while end users are off, a chat has a container")
	}
	h.call(404, "GET", "/v1/end_users/"+string(berth.NewEndUserID(berth.DefaultProject, "ann", "")), nil)
	h.call(400, "POST", "/v1/containers", `{"name":"x","berth":{"user":"ann"}}`)
	long := strings.Repeat("x", 513)
	visitor{h, "sk-proj_a", long, "\t"}.prints("true")

	h.call(200, "POST", "/v1/end_user_settings", `{"enabled":true}`)
	for _, bad := range []visitor{{h, "sk-proj_a", long, "c"}, {h, "sk-proj_a", "u", long}, {h, "sk-proj_a", "\xff", "c"},
		{h, "sk-proj_a", "a\tb", "c"}} {
		if status, o := bad.run("true"); status != 400 {
			t.Errorf("user %.9q, chat %.9q: got %d %v, want a refusal", bad.user, bad.chat, status, o)
		}
	}
	for _, field := range []string{`,"user":"a\u0000b"`, `,"user":"\u001b[2J"`, `,"prompt_cache_key":"a\nb"`} {
		if status, o := (visitor{h, "sk-proj_a", "", ""}).run("true", field); status != 400 {
			t.Errorf("%s: got %d %v, want a refusal", field, status, o)
		}
	}
	for _, id := range []string{"euser_", "euser_x", "%00", "..%2f..", strings.Repeat("e", 5000)} {
		if resp := h.send(t.Context(), "GET", "/v1/end_users/"+id, nil); resp.StatusCode != 404 && resp.StatusCode != 400 {
			t.Errorf("GET the user %.20q: got %d", id, resp.StatusCode)
		}
	}
	c := h.call(200, "POST", "/v1/containers", `{"name":"x","berth":{"user":"eve"}}`)
	if c.at("berth", "end_user") != string(berth.NewEndUserID(berth.DefaultProject, "eve", "")) {
		t.Errorf("a container for a user: %v", c)
	}
}
