package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/modeltest"
)

// The models that an upstream with hosted tools of its own has.
const (
	drawer  = "gpt-5.4"
	clicker = "computer-use-preview"
)

// newOwner starts an upstream that speaks Responses and has tools of its own.
func newOwner(t *testing.T) *modeltest.OpenAIHandler {
	double := modeltest.NewOpenAIServer(t, useOwn)
	double.Models = []string{drawer, clicker}
	return double
}

// useOwn calls the first tool that the upstream has itself, once after each message of a user,
// and then says what came of it.
func useOwn(n int, got *modeltest.Request) modeltest.Turn {
	finish := model.Finish{Reason: model.FinishStop,
		Usage: berth.Usage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}}
	if last := got.Messages[len(got.Messages)-1]; last.Role == "tool" {
		var screen berth.ComputerCallOutput
		if json.Unmarshal([]byte(last.Text), &screen) == nil && screen.Output.Type != "" {
			last.Text = fmt.Sprintf("%d acknowledged, %s", len(screen.AcknowledgedSafetyChecks), screen.Output.ImageURL)
		}
		return modeltest.Reply(model.Text{Text: "It came to this: " + last.Text}, finish)
	}
	for _, tool := range got.Tools {
		switch {
		case tool.Native != nil && tool.Name == berth.ToolImageGeneration:
			id := fmt.Sprintf("ig_%d", n)
			return modeltest.Reply(owned(`response.output_item.added`,
				`"item":{"id":"`+id+`","type":"image_generation_call","status":"in_progress"}`),
				owned(`response.image_generation_call.in_progress`, `"item_id":"`+id+`"`),
				owned(`response.image_generation_call.generating`, `"item_id":"`+id+`"`),
				owned(`response.image_generation_call.partial_image`,
					`"item_id":"`+id+`","partial_image_index":0,"partial_image_b64":"cGFydA==","size":"1024x1024","output_format":"png"`),
				owned(`response.image_generation_call.completed`, `"item_id":"`+id+`"`),
				owned(`response.output_item.done`,
					`"item":{"id":"`+id+`","type":"image_generation_call","status":"completed","output_format":"png","result":"aW1n","revised_prompt":"A ship.","size":"1024x1024"}`),
				model.Text{Text: fmt.Sprintf("%d images came before.", strings.Count(string(got.Body),
					`"result":"aW1n"`))}, finish)
		case tool.Native != nil:
			act := `"actions":[{"type":"click","button":"left","x":10,"y":20},{"type":"screenshot"}]`
			if tool.Name == berth.ToolComputerPreview {
				act = `"action":{"type":"click","button":"left","x":10,"y":20}`
			}
			call := func(status string) string {
				return fmt.Sprintf(
					`"item":{"id":"cu_%d","type":"computer_call","status":"%s","call_id":"call_%d",%s,"pending_safety_checks":[{"id":"cu_sc_%d","code":"malicious_instructions","message":"It looks odd."}]}`,
					n, status, n, act, n)
			}
			return modeltest.Reply(owned(`response.output_item.added`, call("in_progress")),
				owned(`response.output_item.done`, call("completed")), finish)
		case tool.Custom != nil:
			return modeltest.Reply(model.Item{Item: berth.NewItem(berth.CustomToolCall{ID: fmt.Sprintf("ctc_%d", n),
				Type: berth.ItemCustomToolCall, Status: berth.StatusCompleted,
				CallID: fmt.Sprintf("call_%d", n), Name: tool.Name, Input: "SELECT name FROM ships;"})}, finish)
		}
	}
	return modeltest.Reply(model.Text{Text: "no tool"}, finish)
}

// owned returns a step of an item that the upstream makes itself. fields are JSON.
func owned(kind, fields string) model.Native {
	var ev berth.Event
	if err := json.Unmarshal([]byte(`{"type":"`+kind+`",`+fields+`}`), &ev); err != nil {
		panic(err)
	}
	return model.Native{Event: ev}
}

// painter is the name of the model that generates images.
const painter = "painter"

// serveImages answers requests of /v1/images/generations with the prompt after the start of
// a GIF, and those of /v1/images/edits with the prompt and the images.
func serveImages(w http.ResponseWriter, r *http.Request) {
	var drawn, named string
	if strings.HasSuffix(r.URL.Path, "/edits") {
		if err := r.ParseMultipartForm(1 << 20); err != nil {
			http.Error(w, `{"error":{"message":"no form"}}`, http.StatusBadRequest)
			return
		}
		drawn, named = r.FormValue("prompt"), r.FormValue("model")
		for _, field := range []string{"image", "image[]", "mask"} {
			for _, f := range r.MultipartForm.File[field] {
				in, err := f.Open()
				if err != nil {
					panic(err)
				}
				content, _ := io.ReadAll(in)
				drawn += fmt.Sprintf(" %s:%s", field, content)
			}
		}
	} else {
		var in struct{ Prompt, Model string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, `{"error":{"message":"no JSON"}}`, http.StatusBadRequest)
			return
		}
		drawn, named = in.Prompt, in.Model
	}
	if named != painter {
		http.Error(w, `{"error":{"message":"no such model"}}`, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"created": 1,
		"data":  []any{map[string]string{"b64_json": base64.StdEncoding.EncodeToString([]byte("GIF89a" + drawn))}},
		"usage": map[string]int{"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}})
}
