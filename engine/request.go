package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// request returns the provider's request for the next turn, and its view of the
// transcript. limit is its max_output_tokens; 0 means no limit.
func (r *run) request(ctx context.Context, first bool, limit int) (*model.Request, transcript.View, error) {
	body := r.writer.Body()
	view, err := r.transcript.View(ctx, r.withRefusals(body.Output))
	if err != nil {
		return nil, view, err
	}
	out := newRequest(r.record.Request, &body, view.Lowered)
	out.Model, out.MaxOutputTokens = r.upstream, limit
	out.Instructions = r.guard.instructed(out.Instructions)
	out.Tools, out.ToolChoice = r.offered(first)
	out.Tools = r.tools.advise(out.Tools, r.upstream)
	out.MaxToolCalls = r.nativeLimit(out.Tools)
	if err := r.addMasks(ctx, out.Tools); err != nil {
		return nil, view, err
	}
	return out, view, nil
}

// waitsForClient reports whether the response has calls that the client must answer or
// approve. It must only be called when no hosted call is pending.
func (r *run) waitsForClient(body berth.Response) bool {
	return slices.ContainsFunc(body.Output, needsApproval) || slices.ContainsFunc(transcript.Unanswered(r.engine.Tools, body.Output), func(it berth.Item) bool {
		return it.Status() == berth.StatusCompleted
	})
}

// hostedTool returns the hosted tool that runs a call, or nil.
func (r *run) hostedTool(it berth.Item) tool.Tool {
	t := r.tools.hosted(r.engine.Tools.Name(it))
	if t == nil || t.Spec().Call != it.Type() {
		return nil
	}
	return t.Tool
}

// offered returns the functions and the tool choice of one turn. A forced choice binds
// the first turn only, or the model could never answer.
func (r *run) offered(first bool) ([]berth.FunctionTool, model.ToolChoice) {
	specs, choice := r.tools.specs, r.tools.choice
	if !first && choice.Mode != "none" {
		choice = model.ToolChoice{Mode: "auto"}
	}
	if first && r.tools.only != nil {
		specs = slices.DeleteFunc(slices.Clone(specs), func(f berth.FunctionTool) bool { return !slices.Contains(r.tools.only, f.Name) })
	}
	if r.withheld() {
		hosted := func(name string) bool { return r.tools.hosted(name) != nil }
		specs = slices.DeleteFunc(slices.Clone(specs), func(f berth.FunctionTool) bool { return hosted(f.Name) })
		if choice.Mode == "function" && hosted(choice.Name) || len(specs) == 0 {
			choice = model.ToolChoice{Mode: "auto"}
		}
	}
	return specs, choice
}

// withRefusals returns the output with the refused calls in their places.
func (r *run) withRefusals(output []berth.Item) []berth.Item {
	out := make([]berth.Item, 0, len(output)+2*len(r.refusals))
	copied := 0
	for _, f := range r.refusals {
		out = append(append(out, output[copied:f.place]...), f.items[:]...)
		copied = f.place
	}
	return append(out, output[copied:]...)
}

// withheld reports whether max_tool_calls is reached. Hosted tools are then no longer
// offered, and their calls are ignored before they have an effect.
func (r *run) withheld() bool {
	limit := r.record.Body.MaxToolCalls
	return limit != nil && r.hostedCalls >= *limit
}

// toolContext returns the context in which the tools of a run are bound.
func (r *run) toolContext(caller berth.Caller, include []string) tool.Context {
	return tool.Context{Caller: caller, Include: include, Native: r.hasTool, Pictures: runPictures{r}}
}

// addMasks replaces the files to which the upstream's own tools refer by their content.
func (r *run) addMasks(ctx context.Context, tools []berth.FunctionTool) error {
	for i, t := range tools {
		if t.Native == nil || !bytes.Contains(t.Native.Raw(), []byte(`"file_id"`)) {
			continue
		}
		var fields map[string]json.RawMessage
		var mask berth.ImageMask
		if err := t.Native.Decode(&fields); err != nil {
			return fmt.Errorf("decode tool: %w", err)
		}
		if json.Unmarshal(fields["input_image_mask"], &mask) != nil || mask.FileID == "" {
			continue
		}
		url, err := r.transcript.Image(ctx, mask.FileID)
		if err != nil {
			return err
		}
		if fields["input_image_mask"], err = json.Marshal(berth.ImageMask{ImageURL: url}); err != nil {
			return fmt.Errorf("encode mask: %w", err)
		}
		native := berth.NewTool(fields)
		tools[i].Native = &native
	}
	return nil
}

// nativeLimit returns how many calls the upstream may make of its own tools in one turn; 0
// means no limit.
func (r *run) nativeLimit(tools []berth.FunctionTool) int {
	limit := r.record.Body.MaxToolCalls
	hosted := func(f berth.FunctionTool) bool { return f.Native != nil && r.tools.hosted(f.Name) != nil }
	if limit == nil || !slices.ContainsFunc(tools, hosted) {
		return 0
	}
	return max(1, *limit-r.hostedCalls) // at the limit, hosted tools are not offered
}

// runPictures are the images of a run, for its tools.
type runPictures struct{ run *run }

// Conversation implements tool.Pictures.
func (p runPictures) Conversation(ctx context.Context) ([]string, error) {
	return p.run.transcript.Images(ctx, p.run.writer.Body().Output)
}

// File implements tool.Pictures.
func (p runPictures) File(ctx context.Context, id berth.FileID) (string, error) {
	return p.run.transcript.Image(ctx, id)
}
