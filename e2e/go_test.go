package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth"
)

func shellTask(input string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: "scripted",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(input)},
		Tools: []responses.ToolUnionParam{{OfShell: &responses.FunctionShellToolParam{
			Environment: responses.FunctionShellToolEnvironmentUnionParam{OfContainerAuto: &responses.ContainerAutoParam{}},
		}}},
	}
}

// stdouts returns what the commands of a response printed, in order.
func stdouts(r *responses.Response) []string {
	var out []string
	for _, it := range r.Output {
		if it.Type != "shell_call_output" {
			continue
		}
		for _, o := range it.AsShellCallOutput().Output {
			out = append(out, o.Stdout)
		}
	}
	return out
}

// TestGo does the main job with the official Go client.
func TestGo(t *testing.T) {
	s := newServer(t)
	c := s.client()
	one, err := c.Responses.New(t.Context(), shellTask(fence("echo 41 > n; export STEP=1", "echo $STEP; cat n")))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"", "1\n41\n"}, stdouts(one)); diff != "" {
		t.Errorf("first response (-want +got):\n%s", diff)
	}
	next := shellTask(fence("echo $STEP $(($(cat n) + 1))"))
	next.PreviousResponseID = openai.String(one.ID)
	stream := c.Responses.NewStreaming(t.Context(), next)
	var last responses.ResponseStreamEventUnion
	for n := int64(0); stream.Next(); n++ {
		if last = stream.Current(); last.SequenceNumber != n {
			t.Errorf("event %d has sequence number %d", n, last.SequenceNumber)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	two := last.AsResponseCompleted().Response
	if diff := cmp.Diff([]string{"1 42\n"}, stdouts(&two)); diff != "" {
		t.Errorf("second response (-want +got):\n%s", diff)
	}
	_, err = c.Responses.Get(t.Context(), "resp_none", responses.ResponseGetParams{})
	if apiErr, ok := errors.AsType[*openai.Error](err); !ok || apiErr.StatusCode != http.StatusNotFound || apiErr.Type != "invalid_request_error" {
		t.Errorf("an unknown response: got %v", err)
	}
}

// TestEventOrder holds a shell task's stream against what was recorded from the
// hosted service: types, order, which fields there are, how ids begin.
func TestEventOrder(t *testing.T) {
	s := newServer(t)
	body := `{"model":"scripted","stream":true,"input":"` + "```sh\\necho 'Hello from container!' && uname -a\\n```" + `","tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`
	resp, err := http.Post(s.url+"/v1/responses", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		t.Fatalf("Content-Type %q", got)
	}
	var all bytes.Buffer
	if _, err := all.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	var got []string
	for frame := range strings.SplitSeq(strings.TrimSpace(all.String()), "\n\n") {
		name, data, ok := strings.Cut(frame, "\ndata: ")
		if !ok {
			continue // a comment
		}
		var ev map[string]any
		if err := json.Unmarshal([]byte(data), &ev); err != nil {
			t.Fatalf("%v in %q", err, frame)
		}
		if want := "event: " + ev["type"].(string); name != want {
			t.Errorf("frame begins %q, want %q", name, want)
		}
		if line := shape(ev); len(got) == 0 || got[len(got)-1] != line {
			got = append(got, line)
		}
	}
	// The expectation is a table of our own, read off a recording.
	const item, output = " output_index", " item_id output_index"
	want := []string{
		"response.created response", "response.in_progress response",
		"response.output_item.added item:shell_call(sh_ call_)" + item,
		"response.shell_call_command.added command command_index" + item,
		"response.shell_call_command.delta command_index delta" + item,
		"response.shell_call_command.done command command_index" + item,
		"response.output_item.done item:shell_call(sh_ call_)" + item,
		"response.output_item.added item:shell_call_output(sho_ call_)" + item,
		"response.shell_call_output_content.delta command_index delta" + output,
		"response.shell_call_output_content.done command_index item_id output output_index",
		"response.output_item.done item:shell_call_output(sho_ call_)" + item,
		"response.output_item.added item:message(msg_ )" + item,
		"response.content_part.added content_index" + output + " part",
		"response.output_text.delta content_index delta item_id logprobs output_index",
		"response.output_text.done content_index item_id logprobs output_index text",
		"response.content_part.done content_index" + output + " part",
		"response.output_item.done item:message(msg_ )" + item,
		"response.completed response",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the stream differs from the recorded one (-want +got):\n%s", diff)
	}
}

// shape is an event without its values: type, names of fields, prefixes of ids.
func shape(ev map[string]any) string {
	line := ev["type"].(string)
	for _, name := range []string{"command", "command_index", "content_index", "delta", "item", "item_id", "logprobs", "output", "output_index", "part", "response", "text"} {
		v, ok := ev[name]
		if !ok {
			continue
		}
		line += " " + name
		if it, ok := v.(map[string]any); ok && name == "item" {
			line += fmt.Sprintf(":%s(%s %s)", it["type"], prefix(it["id"]), prefix(it["call_id"]))
		}
	}
	return line
}

func prefix(id any) string {
	s, _ := id.(string)
	before, _, ok := strings.Cut(s, "_")
	if !ok {
		return ""
	}
	return before + "_"
}

// TestKeys: with a key, nobody comes in without one, and projects do not see each other.
func TestKeys(t *testing.T) {
	s := newServer(t)
	secrets := map[string]string{}
	for _, p := range []string{"proj_a", "proj_b"} {
		out, errs, err := s.berth("key", "create", "--project", p, "--state", s.state)
		if err != nil {
			t.Fatalf("key create: %v\n%s", err, errs)
		}
		secrets[p] = strings.TrimSpace(out)
	}
	s.waitUntil("keys are asked for", func() bool {
		_, err := s.client().Models.List(t.Context())
		apiErr, ok := errors.AsType[*openai.Error](err)
		return ok && apiErr.StatusCode == http.StatusUnauthorized
	})
	a, b := s.client(option.WithAPIKey(secrets["proj_a"])), s.client(option.WithAPIKey(secrets["proj_b"]))
	r, err := a.Responses.New(t.Context(), shellTask(fence("echo private")))
	if err != nil {
		t.Fatal(err)
	}
	container := berth.ContainerID(r.Tools[0].AsShell().Environment.ContainerID)
	f, err := a.Files.New(t.Context(), openai.FileNewParams{File: strings.NewReader("private"), Purpose: openai.FilePurposeUserData})
	if err != nil {
		t.Fatal(err)
	}
	next := shellTask("hello")
	next.PreviousResponseID = openai.String(r.ID)
	byFile := shellTask("hello")
	byFile.Tools[0].OfShell.Environment.OfContainerAuto.FileIDs = []string{f.ID}
	byContainer := shellTask("hello")
	byContainer.Tools[0].OfShell.Environment = responses.FunctionShellToolEnvironmentUnionParam{OfContainerReference: &responses.ContainerReferenceParam{ContainerID: string(container)}}
	for what, try := range map[string]func() error{
		"get a response":      func() error { _, err := b.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{}); return err },
		"cancel a response":   func() error { _, err := b.Responses.Cancel(t.Context(), r.ID); return err },
		"delete a response":   func() error { return b.Responses.Delete(t.Context(), r.ID) },
		"continue a response": func() error { _, err := b.Responses.New(t.Context(), next); return err },
		"get a container":     func() error { _, err := b.Containers.Get(t.Context(), string(container)); return err },
		"delete a container":  func() error { return b.Containers.Delete(t.Context(), string(container)) },
		"use a container":     func() error { _, err := b.Responses.New(t.Context(), byContainer); return err },
		"get a file":          func() error { _, err := b.Files.Get(t.Context(), f.ID); return err },
		"use a file":          func() error { _, err := b.Responses.New(t.Context(), byFile); return err },
	} {
		if apiErr, ok := errors.AsType[*openai.Error](try()); !ok || apiErr.StatusCode != http.StatusNotFound && apiErr.StatusCode != http.StatusBadRequest {
			t.Errorf("another project can %s: %v", what, try())
		}
	}
	if got, err := a.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{}); err != nil || got.ID != r.ID {
		t.Errorf("the owner cannot see its response any more: %v", err)
	}
	for page := a.Containers.ListAutoPaging(t.Context(), openai.ContainerListParams{}); page.Next(); {
		_ = a.Containers.Delete(t.Context(), page.Current().ID)
	}
	for _, secret := range secrets {
		if strings.Contains(s.log.String(), secret) {
			t.Error("a secret is in the log")
		}
	}
}
