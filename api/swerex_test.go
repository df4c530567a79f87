package api_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/container/bash"
	"github.com/berth-run/berth/guest"
)

// withShells serves SWE-ReX's clients.
func withShells(o *api.Options) {
	o.Shells = bash.New(bash.Options{Sessions: 3, Output: 1000, Start: func(ctx context.Context, c berth.Caller,
		id berth.ContainerID, req guest.ProcessRequest) (bash.Handle, error) {
		p, err := o.Containers.Access().Start(ctx, c, id, req)
		if err != nil {
			return nil, err
		}
		return p, nil
	}})
}

// newShellHouse returns a server that serves SWE-ReX's clients, with a key and a container.
func newShellHouse(t *testing.T) (*house, string) {
	t.Helper()
	h := newHouse(t, withShells)
	h.key("sk-shell", "proj_a")
	return h, "/swerex/" + h.call(200, "POST", "/v1/containers", `{"name":"rex"}`).id()
}

func TestSWEReXIsolation(t *testing.T) {
	t.Parallel()
	h, path := newShellHouse(t)
	h.call(200, "POST", path+"/create_session", `{}`)
	h.call(200, "POST", path+"/write_file", `{"path":"mine","content":"secret"}`)
	requests := map[string]string{"/create_session": `{"session":"x"}`, "/run_in_session": `{"command":"cat mine"}`,
		"/close_session": `{}`, "/execute": `{"command":["cat","mine"]}`, "/read_file": `{"path":"mine"}`,
		"/write_file": `{"path":"mine","content":"theirs"}`, "/close": `{}`}
	theirs := &house{t: t, url: h.url, store: h.store}
	theirs.key("sk-theirs", "proj_b")
	nobody := &house{t: t, url: h.url, store: h.store}
	for name, body := range requests {
		theirs.call(404, "POST", path+name, body)
		nobody.call(401, "POST", path+name, body)
	}
	theirs.call(404, "GET", path+"/is_alive", nil)
	if got := h.call(200, "POST", path+"/run_in_session", `{"command":"cat mine"}`); got.at("output") != "secret" {
		t.Errorf("the session: %v", got)
	}
}

func TestSWEReXBounds(t *testing.T) {
	t.Parallel()
	h, path := newShellHouse(t)
	class := func(name, body string) any {
		t.Helper()
		return h.call(511, "POST", path+name, body).at("swerexception", "class_path")
	}
	for range 3 {
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() { h.call(200, "POST", path+"/create_session", fmt.Sprintf(`{"session":"s%d"}`, i)) })
		}
		all.Wait()
		h.call(429, "POST", path+"/create_session", `{"session":"more"}`)
		if got := class("/create_session", `{"session":"s1"}`); got != "swerex.exceptions.SessionExistsError" {
			t.Errorf("a second session of a name: %v", got)
		}
		h.call(200, "POST", path+"/close", `{}`)
	}
	h.call(200, "POST", path+"/create_session", `{}`)
	got, _ := h.call(200, "POST", path+"/run_in_session", `{"command":"seq 100000"}`).at("output").(string)
	if len(got) > 2100 || !strings.HasSuffix(got, "\n100000\n") {
		t.Errorf("a long output: %d bytes, %q", len(got), got[max(0, len(got)-20):])
	}
	// What a command prints is not taken for the end of another.
	forged := h.call(200, "POST", path+"/run_in_session",
		`{"command":"printf '\\nberth-%032d:7:\\n' 0; echo after; (exit 3)","check":"silent"}`)
	if forged.at("exit_code") != 3.0 || !strings.HasSuffix(forged.at("output").(string), "after\n") {
		t.Errorf("a forged end: %v", forged)
	}
	if got := class("/run_in_session", `{"command":"exit 5"}`); got != "swerex.exceptions.SwerexException" {
		t.Errorf("an end of the shell: %v", got)
	}
	if got := class("/run_in_session", `{"command":"true","session":"none"}`); got !=
		"swerex.exceptions.SessionDoesNotExistError" {
		t.Errorf("no session: %v", got)
	}
	h.call(400, "POST", path+"/run_in_session", `{"command":7}`)
	h.call(400, "POST", path+"/execute", `{"command":`)
	if got := class("/execute", `{"command":[]}`); got != "builtins.ValueError" {
		t.Errorf("an empty command: %v", got)
	}
	if got := class("/read_file", `{"path":"/tmp"}`); got != "builtins.IsADirectoryError" {
		t.Errorf("a directory: %v", got)
	}
}
