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

// An outlook holds what a model is shown of a request. A run keeps the outlook of its request;
// a request that is only measured or compacted has no run.
type outlook struct {
	provider   model.Provider // nil without a model
	upstream   string         // the provider's name of the model
	transcript *transcript.Transcript
	tools      toolset
}

// route finds the provider of the model, unless the caller has set one.
func (o *outlook) route(models Router, name string) (err error) {
	if o.provider != nil {
		o.upstream = name
		return nil
	}
	o.provider, o.upstream, err = models.Route(name)
	return err
}

// hasTool reports whether the upstream has a tool of a type itself.
func (o *outlook) hasTool(toolType string) bool {
	return model.HasTool(o.provider, o.upstream, toolType)
}

// read makes the transcript of a request that continues a chain.
func (o *outlook) read(ctx context.Context, s *transcript.Service, p berth.ProjectID, chain transcript.Chain,
	req *berth.ResponseRequest) (err error) {
	o.transcript, err = s.Prepare(ctx, p, chain, req.PromptItems, req.Input)
	return err
}

// configure completes the response of a request by its context, and binds its tools.
func (o *outlook) configure(kinds *tool.Registry, c tool.Context, body *berth.Response) error {
	items := o.transcript.Items()
	if err := transcript.Configure(body, items); err != nil {
		return err
	}
	return o.bind(kinds, c, body, items)
}

// bind binds the tools of a response in a context.
func (o *outlook) bind(kinds *tool.Registry, c tool.Context, body *berth.Response, items []berth.Item) (err error) {
	if o.tools, err = bindTools(kinds, c, body, items); err != nil {
		return err
	}
	o.tools.setNative(o.transcript)
	return nil
}

// firstRequest returns the provider's request for the first turn.
func (o *outlook) firstRequest(ctx context.Context, req *berth.ResponseRequest, body *berth.Response) (*model.Request,
	transcript.View, error) {
	view, err := o.transcript.View(ctx, nil)
	if err != nil {
		return nil, view, err
	}
	out := newRequest(req, body, view.Lowered)
	out.Model, out.Tools, out.ToolChoice = o.upstream, o.tools.advise(o.tools.specs, o.upstream), o.tools.choice
	return out, view, nil
}

// newRequest returns a provider's request with lowered items. It leaves out the fields
// that change from turn to turn.
func newRequest(req *berth.ResponseRequest, body *berth.Response, items []berth.Item) *model.Request {
	out := &model.Request{
		Items:             items,
		ParallelToolCalls: body.ParallelToolCalls,
		Temperature:       req.Temperature,
		TopP:              req.TopP,
		TopLogprobs:       req.TopLogprobs,
		Logprobs:          slices.Contains(req.Include, "message.output_text.logprobs"),
		Text:              body.Text,
		Reasoning:         body.Reasoning,
		Sampling:          req.Sampling,
	}
	if req.Instructions != nil {
		out.Instructions = *req.Instructions
	}
	for to, from := range map[*string]*string{&out.User: req.User, &out.Hints.PromptCacheKey: req.PromptCacheKey,
		&out.Hints.PromptCacheRetention: req.PromptCacheRetention, &out.Hints.SafetyIdentifier: req.SafetyIdentifier} {
		if from != nil {
			*to = *from
		}
	}
	out.Hints.ServiceTier = req.ServiceTier
	out.Hints.PromptCacheOptions = req.PromptCacheOptions
	out.Hints.AccessPrograms, out.Hints.Moderation = req.AccessPrograms, req.Moderation
	return out
}

// hostedTool returns the hosted tool that runs a call, or nil.
func (o *outlook) hostedTool(kinds *tool.Registry, it berth.Item) tool.Tool {
	t := o.tools.hosted(kinds.Name(it))
	if t == nil || t.Spec().Call != it.Type() {
		return nil
	}
	return t.Tool
}

// addMasks replaces the files to which the upstream's own tools refer by their content.
func (o *outlook) addMasks(ctx context.Context, tools []berth.FunctionTool) error {
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
		url, err := o.transcript.Image(ctx, mask.FileID)
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
