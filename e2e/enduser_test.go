package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// endUser creates an end user of the project, and returns the id.
func (s *server) endUser(name string) string {
	s.t.Helper()
	ctx, c := s.t.Context(), s.client()
	if err := c.Post(ctx, "end_user_settings", map[string]any{"enabled": true}, nil); err != nil {
		s.t.Fatal(err)
	}
	var made struct {
		Berth struct {
			EndUser string `json:"end_user"`
		} `json:"berth"`
	}
	if err := c.Post(ctx, "responses", map[string]any{"model": "scripted", "input": "x", "user": name}, &made); err != nil {
		s.t.Fatal(err)
	}
	return made.Berth.EndUser
}

// An asked is the answer to a request of an application.
type asked struct {
	status int
	text   string
}

// ask sends a request of an application for a chat of a user.
func (s *server) ask(user, chat, method, path string, body any) (asked, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return asked{}, err
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(string(encoded)))
	if err != nil {
		return asked{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-OpenWebUI-User-Id", user)
	req.Header.Set("X-OpenWebUI-Chat-Id", chat)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return asked{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return asked{resp.StatusCode, string(raw)}, err
}

// inChat runs a script by a stateless request of the Responses API that names no container.
func (s *server) inChat(user, chat, script string) asked {
	s.t.Helper()
	got, err := s.ask(user, chat, "POST", "/v1/responses", map[string]any{"model": "scripted", "store": false,
		"input": fence(script), "tools": []any{map[string]any{"type": "shell"}}})
	if err != nil {
		s.t.Error(err)
	}
	return got
}

// endUsers is a configuration that gives each chat a container.
const endUsers = "end_users:\n  enabled: true\n  computer: chat\n"

// TestEndUsers sends stateless requests of chats to real sandboxes: those of a chat see the same files, in the
// Responses API and Chat Completions and Messages, and no other chat, user or project does.
func TestEndUsers(t *testing.T) {
	s := newServerWith(t, endUsers)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if got := s.inChat("ann", "1", "echo line >> notes"); got.status != 200 {
				t.Errorf("a first request: got %d %s", got.status, got.text)
			}
		})
	}
	wg.Wait()
	if n := len(s.sandboxes()); n != 1 {
		t.Errorf("concurrent first requests of a chat made %d sandboxes, want 1", n)
	}
	const count = "echo lines: $(grep -c line notes 2>/dev/null)"
	if got := s.inChat("ann", "1", count); !strings.Contains(got.text, "lines: 6") {
		t.Errorf("the next request of the chat got %d %s, want 6 lines", got.status, got.text)
	}
	for path, body := range map[string]map[string]any{
		"/v1/chat/completions": {"model": "scripted", "messages": []any{map[string]any{"role": "user", "content": fence(count)}},
			"tools": []any{map[string]any{"type": "shell"}}},
		"/v1/messages": {"model": "scripted", "max_tokens": 99, "messages": []any{map[string]any{"role": "user", "content": fence(count)}},
			"tools": []any{map[string]any{"type": "code_execution_20250825", "name": "code_execution"}}},
	} {
		if got, err := s.ask("ann", "1", "POST", path, body); err != nil || !strings.Contains(got.text, "lines: 6") {
			t.Errorf("%s got %d %s, %v, want 6 lines", path, got.status, got.text, err)
		}
	}
	for _, of := range [][2]string{{"bob", "1"}, {"ann", "2"}, {"", "1"}, {"ann", ""}} {
		if got := s.inChat(of[0], of[1], count); got.status != 200 || strings.Contains(got.text, "lines: 6") {
			t.Errorf("user %q, chat %q: got %d %s", of[0], of[1], got.status, got.text)
		}
	}

	out, errs, err := s.berth("end-user", "ls", "--filter", "user=ann")
	if err != nil || strings.Count(out, "ann") != 1 {
		t.Errorf("berth end-user ls: %s%s %v", out, errs, err)
	}
	if out, errs, err = s.berth("end-user", "usage", "ann"); err != nil || !strings.Contains(out, `"containers":3`) &&
		!strings.Contains(out, `"containers": 3`) {
		t.Errorf("berth end-user usage: %s%s %v", out, errs, err)
	}
	if out, errs, err = s.berth("end-user", "forget", "ann", "--yes"); err != nil || !strings.Contains(out, "checkpoint") {
		t.Fatalf("berth end-user forget: %s%s %v", out, errs, err)
	}
	if n := len(s.sandboxes()); n != 2 {
		t.Errorf("%d sandboxes are left, want those of bob and of the chat without a user", n)
	}
	if got := s.inChat("ann", "1", count); got.status != 200 || strings.Contains(got.text, "lines: 6") {
		t.Errorf("after the deletion: got %d %s", got.status, got.text)
	}
	if out, errs, err = s.berth("end-user", "get", "nobody"); err == nil || !strings.Contains(errs, "not found") {
		t.Errorf("berth end-user get of nobody: %s%s %v", out, errs, err)
	}
}

// TestEndUserKilled kills the server while it deletes the data of a user. The next start continues by itself.
func TestEndUserKilled(t *testing.T) {
	s := newServerWith(t, endUsers)
	const responses = 40
	ids := make([]string, responses)
	for i := range ids {
		got, err := s.ask("ann", "1", "POST", "/v1/responses", map[string]any{"model": "scripted", "input": "x"})
		var made struct{ ID string }
		if err := json.Unmarshal([]byte(got.text), &made); err != nil || made.ID == "" {
			t.Fatalf("got %d %s, %v", got.status, got.text, err)
		}
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = "/v1/responses/" + made.ID
	}
	for i := range 3 { // the last that are deleted
		if got := s.inChat("ann", fmt.Sprint(i), "echo mine > file"); got.status != 200 {
			t.Fatalf("got %d %s", got.status, got.text)
		}
	}
	if got := s.inChat("bob", "1", "echo kept > file"); got.status != 200 {
		t.Fatalf("got %d %s", got.status, got.text)
	}
	user := s.endUser("ann")
	ended := make(chan asked, 1)
	go func() {
		got, _ := s.ask("", "", "DELETE", "/v1/end_users/"+user, nil)
		ended <- got
	}()
	exists := func(path string) bool {
		got, err := s.ask("", "", "GET", path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got.status == 200
	}
	s.waitUntil("the first response is deleted", func() bool { return !exists(ids[0]) })
	s.kill()
	if got := receive(t, ended, "the request ends"); got.status != 0 {
		t.Fatalf("the deletion ended before the server was killed: %d %s", got.status, got.text)
	}
	s.start()
	s.waitUntil("the user is forgotten", func() bool { return !exists("/v1/end_users/" + user) })
	for _, path := range ids {
		if exists(path) {
			t.Errorf("%s is left", path)
		}
	}
	if n := len(s.sandboxes()); n != 1 {
		t.Errorf("%d sandboxes are left, want that of the other user", n)
	}
	if got := s.inChat("bob", "1", "cat file"); !strings.Contains(got.text, "kept") {
		t.Errorf("the other user's file: %d %s", got.status, got.text)
	}
	out, errs, err := s.berth("audit", "log", "--state", s.state, "--json")
	if err != nil || strings.Count(out, `"end_user.forgotten"`) != 1 {
		t.Errorf("the audit record has %d entries of the deletion, want 1: %s %v", strings.Count(out, `"end_user.forgotten"`), errs, err)
	}
	if out, errs, err := s.berth("audit", "verify", "--state", s.state); err != nil {
		t.Errorf("the audit record: %s%s %v", out, errs, err)
	}
}
