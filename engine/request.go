package engine

import (
	"context"
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
	view, err := r.transcript.View(ctx, r.refusals.within(body.Output))
	if err != nil {
		return nil, view, err
	}
	out := newRequest(r.record.Request, &body, view.Lowered)
	out.Model, out.MaxOutputTokens = r.upstream, limit
	out.Instructions = r.guard.instructed(out.Instructions)
	out.Tools, out.ToolChoice = r.tools.offered(first, r.withheld())
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
	return slices.ContainsFunc(body.Output, needsApproval) || slices.ContainsFunc(transcript.Unanswered(r.engine.Tools,
		body.Output), func(it berth.Item) bool {
		return it.Status() == berth.StatusCompleted
	})
}

// within returns the output with the refused calls in their places.
func (all refusals) within(output []berth.Item) []berth.Item {
	out := make([]berth.Item, 0, len(output)+2*len(all))
	copied := 0
	for _, f := range all {
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
