package e2e

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// TestRetryAfterCrash loses the server in the middle of a stream and sends the same
// request again, with the Idempotency-Key that it had: it gets the same response
// from its start, and the command has run once.
func TestRetryAfterCrash(t *testing.T) {
	s := newServer(t)
	key := option.WithHeader("Idempotency-Key", "one deed")
	task := shellTask(fence(`echo begun >> counter; echo said; until [ -e go ]; do sleep 0.05; done; cat counter`))
	stream := s.client().Responses.NewStreaming(t.Context(), task, key)
	var id, container string
	for stream.Next() {
		ev := stream.Current()
		if ev.Type == "response.created" {
			id, container = ev.Response.ID, ev.Response.Tools[0].AsShell().Environment.ContainerID
		}
		if ev.Type == "response.shell_call_output_content.delta" {
			break
		}
	}
	s.kill()
	stream.Close()
	s.start()
	stream = s.client().Responses.NewStreaming(t.Context(), task, key)
	next, told := int64(0), ""
	var last string
	for stream.Next() {
		ev := stream.Current()
		if ev.SequenceNumber != next {
			t.Fatalf("event %d where %d is next", ev.SequenceNumber, next)
		}
		next++
		switch ev.Type {
		case "response.created":
			if ev.Response.ID != id {
				t.Errorf("got response %s, want %s again", ev.Response.ID, id)
			}
			if _, err := s.client().Containers.Files.New(t.Context(), container,
				openai.ContainerFileNewParams{File: openai.File(strings.NewReader(""), "go",
					"text/plain")}); err != nil {
				t.Fatal(err)
			}
		case "response.shell_call_output_content.delta":
			told += ev.AsResponseShellCallOutputContentDelta().Delta.Stdout
		}
		last = ev.Type
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if told != "said\nbegun\n" || last != "response.completed" {
		t.Errorf("got %q and the end %s, want the command run once", told, last)
	}
	// Another request with that key is refused.
	_, err := s.client().Responses.New(t.Context(), shellTask("something else"), key)
	if e, ok := errors.AsType[*openai.Error](err); !ok || e.StatusCode != http.StatusBadRequest ||
		e.Code != "idempotency_key_reuse" {
		t.Errorf("got %v", err)
	}
}
