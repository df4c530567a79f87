package e2e

import (
	"errors"
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
	if apiErr, ok := errors.AsType[*openai.Error](err); !ok || apiErr.StatusCode != http.StatusNotFound ||
		apiErr.Type != "invalid_request_error" {
		t.Errorf("an unknown response: got %v", err)
	}
}

// TestKeys: once a key exists, requests without one are refused, and projects do not see each
// other.
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
	f, err := a.Files.New(t.Context(), openai.FileNewParams{File: strings.NewReader("private"),
		Purpose: openai.FilePurposeUserData})
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
		"get a response": func() error {
			_, err := b.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
			return err
		},
		"cancel a response":   func() error { _, err := b.Responses.Cancel(t.Context(), r.ID); return err },
		"delete a response":   func() error { return b.Responses.Delete(t.Context(), r.ID) },
		"continue a response": func() error { _, err := b.Responses.New(t.Context(), next); return err },
		"get a container":     func() error { _, err := b.Containers.Get(t.Context(), string(container)); return err },
		"delete a container":  func() error { return b.Containers.Delete(t.Context(), string(container)) },
		"use a container":     func() error { _, err := b.Responses.New(t.Context(), byContainer); return err },
		"get a file":          func() error { _, err := b.Files.Get(t.Context(), f.ID); return err },
		"use a file":          func() error { _, err := b.Responses.New(t.Context(), byFile); return err },
	} {
		if apiErr, ok := errors.AsType[*openai.Error](try()); !ok || apiErr.StatusCode != http.StatusNotFound &&
			apiErr.StatusCode != http.StatusBadRequest {
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
