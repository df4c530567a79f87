package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/berth-run/berth/internal/freeport"
	"github.com/berth-run/berth/internal/longtest"
)

// TestRealModel uses a small language model that llama.cpp runs, whose answers are not
// scripted: a stream, its ends, a call that it is forced to make, and a generation that
// is cancelled.
func TestRealModel(t *testing.T) {
	longtest.Skip(t)
	skipWithout(t, filepath.Join(filepath.Dir(filepath.Dir(pythonClient{env: "model"}.python(t))), ".model"))
	url := serveSmolLM2(t)
	s := newServer(t, "OPENAI_BASE_URL="+url+"/v1", "OPENAI_API_KEY=none")
	c := s.client().Responses
	ask := func(input string, most int64) responses.ResponseNewParams {
		return responses.ResponseNewParams{Model: "smollm2", Temperature: openai.Float(0),
			MaxOutputTokens: openai.Int(most),
			Input:           responses.ResponseNewParamsInputUnion{OfString: openai.String(input)}}
	}

	t.Run("stream", func(t *testing.T) {
		stream := c.NewStreaming(t.Context(), ask("Say hello.", 500))
		var text string
		var deltas int
		var last responses.ResponseStreamEventUnion
		for stream.Next() {
			last = stream.Current()
			if last.Type == "response.output_text.delta" {
				deltas++
				text += last.Delta
			}
		}
		if err := stream.Err(); err != nil || last.Type != "response.completed" || deltas < 2 ||
			text != last.Response.OutputText() {
			t.Errorf("%d deltas make %q, the response ended with %s and says %q: %v", deltas, text, last.Type,
				last.Response.OutputText(), err)
		}
		// llama.cpp's server for Python reports no usage in a stream: it is estimated.
		if u := last.Response.Usage; u.InputTokens < 3 || u.OutputTokens < 1 ||
			u.TotalTokens != u.InputTokens+u.OutputTokens {
			t.Errorf("the usage is %s", u.RawJSON())
		}
	})

	t.Run("output that its bound cuts", func(t *testing.T) {
		r, err := c.New(t.Context(), ask("Tell a long story.", 16))
		if err != nil || r.Status != "incomplete" || r.IncompleteDetails.Reason != "max_output_tokens" ||
			r.OutputText() == "" {
			t.Errorf("got %+v, %v", r, err)
		}
	})

	t.Run("forced call", func(t *testing.T) {
		task := ask("When is the tide high in Brest?", 200)
		task.Tools = []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "tide",
			Parameters: map[string]any{
				"type": "object",
				"properties": map[string]any{"port": map[string]any{"type": "string",
					"enum": []string{"Brest", "Kiel"}}}, "required": []string{"port"}}}}}
		task.ToolChoice = responses.ResponseNewParamsToolChoiceUnion{OfFunctionTool: &responses.ToolChoiceFunctionParam{Name: "tide"}}
		r, err := c.New(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Output) != 1 || r.Output[0].Type != "function_call" {
			t.Fatalf("got %s", r.RawJSON())
		}
		var arguments struct{ Port string }
		call := r.Output[0].AsFunctionCall()
		if err := json.Unmarshal([]byte(call.Arguments), &arguments); err != nil || call.Name != "tide" ||
			arguments.Port == "" {
			t.Errorf("called %s with %q: %v", call.Name, call.Arguments, err)
		}
	})

	// The model answers one request at a time: the next one is answered because the
	// upstream heard of the cancelling.
	t.Run("cancelled generation", func(t *testing.T) {
		task := ask("Count from one to ten thousand.", 3000)
		task.Background = openai.Bool(true)
		r, err := c.New(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		stream := c.GetStreaming(t.Context(), r.ID, responses.ResponseGetParams{})
		for stream.Next() && stream.Current().Type != "response.output_text.delta" {
		}
		stream.Close()
		if r, err = c.Cancel(t.Context(), r.ID); err != nil || r.Status != "cancelled" {
			t.Fatalf("cancelled: %+v, %v", r, err)
		}
		if r, err = c.New(t.Context(), ask("Say hello.", 20)); err != nil || r.OutputText() == "" {
			t.Errorf("the next: %+v, %v", r, err)
		}
	})

	t.Run("Chat Completions", func(t *testing.T) {
		var all openai.ChatCompletionAccumulator
		stream := s.client().Chat.Completions.NewStreaming(t.Context(),
			openai.ChatCompletionNewParams{Model: shared.ChatModel("smollm2"),
				Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Tell a long story.")},
				MaxCompletionTokens: openai.Int(8)})
		for stream.Next() {
			all.AddChunk(stream.Current())
		}
		if err := stream.Err(); err != nil || len(all.Choices) != 1 || all.Choices[0].FinishReason != "length" ||
			all.Choices[0].Message.Content == "" {
			t.Errorf("got %+v, %v", all.Choices, err)
		}
	})
}

// serveSmolLM2 starts the model at a URL; it ends with the test.
func serveSmolLM2(t *testing.T) string {
	t.Helper()
	port := freeport.Port(t)
	log := &logBuffer{}
	cmd := exec.Command("../scripts/smollm2", port)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the model's server said:\n%s", log)
		}
	})
	url := fmt.Sprintf("http://127.0.0.1:%s", port)
	(&server{t: t, log: log}).waitUntil("the model's server answers", func() bool {
		resp, err := http.Get(url + "/v1/models")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return url
}
