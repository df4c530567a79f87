package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// TestCrash kills the server in the middle of a command. After a restart the
// response continues by itself; the command, which outlived the server, ran once,
// and the stream can be read from where the client lost it.
func TestCrash(t *testing.T) { crash(t, newServer(t)) }

func crash(t *testing.T, s *server) {
	c := s.client()
	const script = `echo begun >> counter; echo first half; until [ -e go ]; do sleep 0.05; done; echo second half`
	task := shellTask(fence(script, "cat counter"))
	stream := c.Responses.NewStreaming(t.Context(), task)
	var seen int64
	var id, container string
	for stream.Next() {
		ev := stream.Current()
		seen = ev.SequenceNumber
		if ev.Type == "response.created" {
			id = ev.Response.ID
			container = ev.Response.Tools[0].AsShell().Environment.ContainerID
		}
		if ev.Type == "response.shell_call_output_content.delta" {
			break
		}
	}
	s.kill()
	stream.Close()
	s.start()
	c = s.client()
	if _, err := c.Containers.Files.New(t.Context(), container,
		openai.ContainerFileNewParams{File: openai.File(strings.NewReader(""), "go", "text/plain")}); err != nil {
		t.Fatalf("the container did not outlive the server: %v", err)
	}
	rest := c.Responses.GetStreaming(t.Context(), id, responses.ResponseGetParams{StartingAfter: openai.Int(seen)})
	var told strings.Builder
	told.WriteString("first half\n")
	for rest.Next() {
		ev := rest.Current()
		if seen++; ev.SequenceNumber != seen {
			t.Fatalf("event %d follows %d", ev.SequenceNumber, seen-1)
		}
		if ev.Type == "response.shell_call_output_content.delta" {
			told.WriteString(ev.AsResponseShellCallOutputContentDelta().Delta.Stdout)
		}
	}
	if err := rest.Err(); err != nil {
		t.Fatal(err)
	}
	if got, want := told.String(), "first half\nsecond half\nbegun\n"; got != want {
		t.Errorf("the deltas before and after the restart have %q, want %q", got, want)
	}
	r, err := c.Responses.Get(t.Context(), id, responses.ResponseGetParams{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != "completed" {
		t.Errorf("status %s: %v", r.Status, r.Error)
	}
	if diff := cmp.Diff([]string{"first half\nsecond half\n", "begun\n"}, stdouts(r)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if resp, err := http.Get(s.url + "/healthz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the server is not well: %v", err)
	}
}
