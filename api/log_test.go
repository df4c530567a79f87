package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// runShell runs commands, one turn each, in a container and returns the response.
func (h *house) runShell(container string, commands ...string) object {
	h.t.Helper()
	var text strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&text, "```sh\n%s\n```\n", c)
	}
	body, err := json.Marshal(map[string]any{"model": "scripted", "input": text.String(),
		"tools": []any{map[string]any{"type": "shell", "environment": map[string]any{"type": "container_reference",
			"container_id": container}}}})
	check(h.t, err)
	return h.call(200, "POST", "/v1/responses", string(body))
}

// exec runs a process through the guest's door and returns how it ended.
func (h *house) exec(container string, command ...string) guest.ProcessEvent {
	h.t.Helper()
	p, err := guest.NewHTTPClient(h.url+"/v1/containers/"+container+"/guest",
		&http.Client{Transport: bearer(h.token)}).Start(h.t.Context(), guest.ProcessRequest{Cmd: command[0],
		Args: command[1:],
		Env:  map[string]string{"TOKEN": "sk-of-the-process"}})
	check(h.t, err)
	var last guest.ProcessEvent
	for ev, err := range p.Events() {
		check(h.t, err)
		last = ev
	}
	return last
}

// logs returns a container's log, the oldest first.
func (h *house) logs(container string) []*berth.ContainerLog {
	h.t.Helper()
	raw, err := json.Marshal(h.call(200, "GET", "/v1/containers/"+container+"/logs?limit=100&order=asc", nil)["data"])
	check(h.t, err)
	var logs []*berth.ContainerLog
	check(h.t, json.Unmarshal(raw, &logs))
	return logs
}

func TestLogs(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	h.key("sk-secret", "proj_1")
	keys, err := h.store.ListKeys(t.Context())
	check(t, err)
	id := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	r := h.runShell(id, "echo out; echo err >&2; exit 3", "seq 100000")
	h.exec(id, "sh", "-c", "echo it\\'s $0", "a b")
	logs := h.logs(id)
	if len(logs) != 3 {
		t.Fatalf("got %d entries, want 3", len(logs))
	}
	var calls []string
	for _, item := range r["output"].([]any) {
		if item := item.(map[string]any); item["type"] == "shell_call" {
			calls = append(calls, item["id"].(string))
		}
	}
	want := []*berth.ContainerLog{
		{Source: berth.LogShell, ResponseID: berth.ResponseID(r.id()), CallID: calls[0], KeyID: keys[0].ID,
			Command: "echo out; echo err >&2; exit 3",
			Outcome: berth.ShellOutcome{Type: "exit", ExitCode: new(3)}, Stdout: berth.LogText{Text: "out\n", Bytes: 4},
			Stderr: berth.LogText{Text: "err\n", Bytes: 4}},
		{Source: berth.LogShell, ResponseID: berth.ResponseID(r.id()), CallID: calls[1], KeyID: keys[0].ID,
			Command: "seq 100000",
			Outcome: berth.ShellOutcome{Type: "exit", ExitCode: new(0)},
			Stdout:  berth.LogText{Text: logs[1].Stdout.Text, Bytes: 588895}},
		{Source: berth.LogExec, KeyID: keys[0].ID, Command: `sh -c 'echo it\'\''s $0' 'a b'`,
			Outcome: berth.ShellOutcome{Type: "exit", ExitCode: new(0)}, Stdout: berth.LogText{Text: "it's a b\n",
				Bytes: 9}},
	}
	for i, l := range logs {
		if !strings.HasPrefix(string(l.ID), "clog_") || !strings.HasPrefix(l.RequestID, "req_") || l.CreatedAt == 0 ||
			l.StartedAtMS/1000 != l.CreatedAt {
			t.Errorf("entry %d: got %+v, want an id, a request and a time", i, l)
		}
		want[i].ID, want[i].RequestID, want[i].CreatedAt, want[i].DurationMS = l.ID, l.RequestID, l.CreatedAt,
			l.DurationMS
		want[i].StartedAtMS = l.StartedAtMS
		want[i].Object, want[i].ContainerID, want[i].SequenceNumber = "container.log", berth.ContainerID(id), int64(i)
	}
	if diff := cmp.Diff(want, logs); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
	long := logs[1].Stdout.Text
	if !strings.HasPrefix(long, "1\n2\n") || !strings.HasSuffix(long, "99999\n100000\n") || !strings.Contains(long,
		"[… 580703 bytes left out …]") || len(long) > 9000 {
		t.Errorf("got %d bytes of a long output, %.20q…%q", len(long), long, long[len(long)-20:])
	}
	first := h.call(200, "GET", "/v1/containers/"+id+"/logs?limit=2", nil)
	if first.at("has_more") != true || first.at("data", 0, "id") != string(logs[2].ID) {
		t.Errorf("got %v, want the newest first and more", first)
	}
	h.call(200, "DELETE", "/v1/containers/"+id, nil)
	h.call(404, "GET", "/v1/containers/"+id+"/logs", nil)
}

// A process cannot be started with a protocol that the log does not decode.
func TestLogsHaveNoWayAround(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	id := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	path := "/v1/containers/" + id + "/guest/process.Process/Start"
	for kind, body := range map[string]string{
		"application/json": `{"process":{"cmd":"true"}}`, "application/grpc-web+json": "\x00\x00\x00\x00\x02{}",
		"application/grpc+proto":                  "\x00\x00\x00\x00\x00",
		"application/connect+json":                "\x00\x00\x00\x00\x02{}\x00\x00\x00\x00\x02{}",
		"application/connect+proto":               "\x00\x00\x00\x00\x01\xff",
		"application/connect+json; charset=utf-8": "\x01\x00\x00\x00\x02{}",
	} {
		resp := h.send(t.Context(), "POST", path, strings.NewReader(body), kind)
		if resp.StatusCode != 400 && resp.StatusCode != 415 {
			t.Errorf("%s %q: got %d, want it refused", kind, body, resp.StatusCode)
		}
	}
	if logs := h.logs(id); len(logs) != 0 {
		t.Errorf("got %d entries, want none", len(logs))
	}
}

func TestFollowLogs(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	id := h.call(200, "POST", "/v1/containers", `{"name":"x"}`).id()
	h.exec(id, "echo", "one")
	follow := "/v1/containers/" + id + "/logs?follow=true"
	all := h.stream(t.Context(), "GET", follow, nil)
	resumed := h.stream(t.Context(), "GET", follow+"&starting_after=0", nil)
	if got := h.until(all, "container.log").at("log", "stdout", "text"); got != "one\n" {
		t.Errorf("got %q, want what was there", got)
	}
	h.exec(id, "echo", "two")
	for name, r := range map[string]object{"from the start": h.until(all, "container.log"), "resumed": h.until(resumed,
		"container.log")} {
		if r.at("log", "stdout", "text") != "two\n" || r.at("sequence_number") != 1.0 {
			t.Errorf("%s: got %v, want the second", name, r)
		}
	}
	h.call(200, "DELETE", "/v1/containers/"+id, nil)
	if rest := h.rest(all); len(rest) != 1 || rest[0].Type != "container.log.done" {
		t.Errorf("got %v after the end, want that it is", rest)
	}
	for _, query := range []string{"?follow=maybe", "?follow=true&starting_after=x", "?follow=true&limit=3",
		"?starting_after=1", "?limit=101"} {
		h.call(400, "GET", "/v1/containers/"+id+"/logs"+query, nil)
	}
}
