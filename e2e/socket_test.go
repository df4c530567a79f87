package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// A socket is a connection of the official client.
type socket struct {
	t    *testing.T
	conn *responses.ResponseConnection
}

func (s *server) connect() *socket {
	s.t.Helper()
	conn, err := s.client().Responses.Connect(s.t.Context(), responses.ResponseConnectionOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(conn.Abort)
	return &socket{s.t, conn}
}

// ask asks for a response and returns it as it ended, or the error event.
func (s *socket) ask(task responses.ResponseNewParams, opts ...socketOption) (*responses.Response, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	event := responses.ResponsesClientEventResponseCreateParam{Model: task.Model, Tools: task.Tools,
		Input: responses.ResponsesClientEventResponseCreateInputUnionParam{OfString: task.Input.OfString}}
	for _, opt := range opts {
		opt(&event)
	}
	if err := s.conn.Create(ctx, event); err != nil {
		s.t.Fatal(err)
	}
	for {
		ev, err := s.conn.Recv(ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		switch ev.Type {
		case "response.completed":
			r := ev.AsResponseCompleted().Response
			return &r, ""
		case "error":
			return nil, ev.AsResponsesServerEventResponseWsError().Error.Code
		}
	}
}

type socketOption = func(*responses.ResponsesClientEventResponseCreateParam)

func unstored(e *responses.ResponsesClientEventResponseCreateParam) { e.Store = openai.Bool(false) }

func continuing(id string) socketOption {
	return func(e *responses.ResponsesClientEventResponseCreateParam) { e.PreviousResponseID = openai.String(id) }
}

func TestGoSocket(t *testing.T) {
	s := newServer(t)
	a, b := s.connect(), s.connect()
	first, _ := a.ask(shellTask(fence("echo moored > knot")), unstored)
	_, err := s.client().Responses.Get(t.Context(), first.ID, responses.ResponseGetParams{})
	if apiErr, ok := errors.AsType[*openai.Error](err); !ok || apiErr.StatusCode != http.StatusNotFound {
		t.Errorf("got %v for a response that is not stored, want 404", err)
	}
	if _, code := b.ask(shellTask("x"), unstored, continuing(first.ID)); code != "previous_response_not_found" {
		t.Errorf("got %q on another connection, want previous_response_not_found", code)
	}
	second, code := a.ask(shellTask(fence("cat knot")), unstored, continuing(first.ID))
	if code != "" {
		t.Fatalf("got error %s", code)
	}
	if got := stdouts(second); len(got) != 1 || got[0] != "moored\n" {
		t.Errorf("got %q from the second turn, want what the first left", got)
	}
}

// A server that stops says so to its sockets, and the next start continues
// what was asked on them.
func TestStopWithSockets(t *testing.T) {
	s := newServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, s.url+"/v1/responses", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(-1)
	request, err := json.Marshal(map[string]any{"type": "response.create", "model": "scripted",
		"input": fence("echo one; until [ -e go ]; do sleep 0.05; done; echo two"),
		"tools": []any{map[string]any{"type": "shell", "environment": map[string]any{"type": "container_auto"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write(ctx, websocket.MessageText, request); err != nil {
		t.Fatal(err)
	}
	var id, container string
	var last struct {
		Type     string
		Status   int
		Response struct {
			ID    string
			Tools []struct {
				Environment struct {
					ContainerID string `json:"container_id"`
				}
			}
		}
	}
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			if got := websocket.CloseStatus(err); got != websocket.StatusGoingAway {
				t.Errorf("got %v, want the connection closed with %d", err, websocket.StatusGoingAway)
			}
			break
		}
		if err := json.Unmarshal(data, &last); err != nil {
			t.Fatal(err)
		}
		switch last.Type {
		case "response.created":
			id, container = last.Response.ID, last.Response.Tools[0].Environment.ContainerID
		case "response.shell_call_output_content.delta": // it runs
			if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if last.Type != "error" || last.Status != 503 {
		t.Errorf("got %+v last, want an error with status 503", last)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Fatalf("the server did not stop in order: %v\n%s", err, s.log)
	}
	s.start()
	_, err = s.client().Responses.New(ctx, responses.ResponseNewParams{
		Model: "scripted",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(fence("touch go"))},
		Tools: []responses.ToolUnionParam{{OfShell: &responses.FunctionShellToolParam{Environment: responses.FunctionShellToolEnvironmentUnionParam{
			OfContainerReference: &responses.ContainerReferenceParam{ContainerID: container}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.waitUntil("the response has ended", func() bool {
		r, err := s.client().Responses.Get(ctx, id, responses.ResponseGetParams{})
		return err == nil && r.Status == "completed" && len(stdouts(r)) == 1 && stdouts(r)[0] == "one\ntwo\n"
	})
}
