// Package imagegeneration is the image_generation tool, with which a model lets an upstream
// generate images.
package imagegeneration

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

//go:embed imagegeneration.md
var description string

//go:embed edit.md
var editing string

//go:embed imagegeneration.json
var parameters json.RawMessage

//go:embed edit.json
var editParameters json.RawMessage

// name is the function under which a model sees the tool.
const name = berth.ToolImageGeneration

// Options are what the tool needs of the server.
type Options struct {
	Model  string // that generates images unless the request names one; empty refuses the tool
	Images Images
	Log    *slog.Logger
}

// Images generates images with the upstream of a model.
type Images interface {
	// Generate sends a request of /v1/images/generations and yields the JSON of the events
	// of its stream, or of its whole answer if the upstream does not stream. Errors that are
	// *berth.Error are for the model.
	Generate(ctx context.Context, caller berth.Caller, model string,
		fields map[string]json.RawMessage) iter.Seq2[[]byte, error]
	// Edit is Generate for /v1/images/edits, with the images and a mask, which may be nil.
	Edit(ctx context.Context, caller berth.Caller, model string, fields map[string]json.RawMessage, images []Picture,
		mask *Picture) iter.Seq2[[]byte, error]
}

// A Picture is an image with its media type: "image/png".
type Picture struct {
	MediaType string
	Content   []byte
}

// Kind returns the image_generation tool.
func Kind(opts Options) tool.Kind {
	return tool.Kind{
		Type: berth.ToolImageGeneration, Name: name,
		Rules: func(*tool.Registry) tool.Rules {
			chosen := rule.Object(rule.Fields{"type": rule.AnyText})
			return tool.Rules{Tool: offeredRule, Found: offeredRule, Choice: chosen, Subset: chosen, Call: callRule}
		},
		Bind: func(c tool.Context, t berth.Tool) (tool.Tool, error) {
			image, err := tool.Decode[berth.ImageGenerationTool](t, "image generation tool")
			if err != nil {
				return nil, err
			}
			if c.IsNative(berth.ToolImageGeneration) {
				return &Tool{image: image, native: &t}, nil
			}
			if opts.Model == "" {
				return nil, &berth.Error{Code: berth.CodeInvalid, Wire: "unsupported_value", Param: "type",
					Message: "Unsupported value: 'image_generation' needs a model that generates images, and neither this server nor the upstream of this model has one. Its operator can set 'image_generation.model' in the configuration."}
			}
			return &Tool{opts: opts, image: image, caller: c.Caller, pictures: c.Pictures}, nil
		},
		Calls: &tool.Calls{Call: berth.ItemImageGenerationCall, CallPrefix: berth.PrefixImageGeneration,
			LowerCall: lowerCall, LowerOutput: lowerOutput, Outcome: outcome, Fill: fill,
			Hosted: func(berth.Item) bool { return true }},
	}
}

var (
	offeredRule = rule.Object(rule.Fields{
		"type": rule.AnyText, "model": rule.Text(1, 256), "quality": rule.OneOf("low", "medium", "high", "auto"),
		"size":          rule.Text(1, 32),
		"output_format": rule.OneOf("png", "webp", "jpeg"), "output_compression": rule.Integer(0, 100),
		"moderation": rule.OneOf("auto", "low"),
		"background": rule.OneOf("transparent", "opaque", "auto"), "partial_images": rule.Integer(0, 3),
		"action":         rule.OneOf("generate", "edit", "auto"),
		"input_fidelity": rule.OneOf("high", "low"), "input_image_mask": rule.OneSource([]string{"image_url",
			"file_id"},
			rule.Object(rule.Fields{"image_url": rule.ImageURL, "file_id": rule.Text(1, 256)})),
		"n":   rule.Integer(1, 1),
		"svg": rule.Unsupported, "complexity": rule.Unsupported, "frame_count": rule.Unsupported,
		"frame_duration_ms": rule.Unsupported,
	})
	callRule = rule.Item(rule.Fields{
		"status": rule.OneOf("in_progress", "generating", "completed", "failed", "incomplete"),
		"result": rule.Text(0, math.MaxInt32), "revised_prompt": rule.AnyText, "output_format": rule.AnyText,
		"size":    rule.AnyText,
		"quality": rule.AnyText, "background": rule.AnyText, "berth": rule.OpenObject(rule.Fields{"error": rule.AnyText,
			"images": rule.List(rule.Integer(1, math.MaxInt32), maxImages)}),
	})
)

// A Tool generates images for one response.
type Tool struct {
	opts   Options
	image  berth.ImageGenerationTool
	caller berth.Caller

	pictures tool.Pictures // to edit, or nil
	native   *berth.Tool   // for an upstream that has the tool itself, or nil
}

var _ tool.Tool = (*Tool)(nil)

// Spec implements tool.Tool.
func (t *Tool) Spec() tool.Spec {
	shown := tool.Function(name, strings.TrimSpace(description), parameters)
	if t.image.Action != berth.ImageGenerate {
		shown = tool.Function(name, strings.TrimSpace(description)+"\n\n"+strings.TrimSpace(editing), editParameters)
	}
	shown.Native = t.native
	return tool.Spec{Function: shown, Call: berth.ItemImageGenerationCall}
}

// NewCall implements tool.Tool.
func (t *Tool) NewCall(string) tool.Call {
	return &call{tool: t, item: berth.ImageGenerationCall{ID: berth.NewID(berth.PrefixImageGeneration),
		Type:   berth.ItemImageGenerationCall,
		Status: string(berth.StatusInProgress)}}
}

// ResumeCall implements tool.Tool. Whether the upstream has made the image is not known, and
// it would not return it. The model is called again.
func (*Tool) ResumeCall(berth.Item, berth.Item, []berth.Event) (tool.Call, error) { return nil, nil }

// fill sets the result of a call without one, which the wire always shows.
func fill(it berth.Item, fields map[string]any) error {
	var c berth.ImageGenerationCall
	if err := it.Decode(&c); err != nil {
		return fmt.Errorf("decode image generation call: %w", err)
	}
	if c.Result == nil {
		fields["result"] = nil
	}
	return nil
}

// lowerCall returns a call with its prompt.
func lowerCall(it berth.Item) (function, arguments string, err error) {
	var c berth.ImageGenerationCall
	if err := it.Decode(&c); err != nil {
		return "", "", fmt.Errorf("decode image generation call: %w", err)
	}
	shown := map[string]any{"prompt": c.RevisedPrompt}
	if c.Berth != nil && len(c.Berth.Images) > 0 {
		shown["images"] = c.Berth.Images
	}
	raw, err := json.Marshal(shown)
	if err != nil {
		return "", "", fmt.Errorf("encode prompt: %w", err)
	}
	return name, string(raw), nil
}

// lowerOutput returns what the model learns of the image: not the image, which many models
// cannot read.
func lowerOutput(it berth.Item) (json.RawMessage, error) {
	var c berth.ImageGenerationCall
	if err := it.Decode(&c); err != nil {
		return nil, fmt.Errorf("decode image generation call: %w", err)
	}
	switch {
	case c.Berth != nil && c.Berth.Error != "":
		return berth.StringDelta("No image was generated. " + c.Berth.Error), nil
	case c.Result == nil || *c.Result == "":
		return nil, nil
	}
	text := "The image was generated and shown to the user."
	if c.Size != "" {
		text += " Its size is " + c.Size + "."
	}
	return berth.StringDelta(text), nil
}

func outcome(it berth.Item) tool.Outcome {
	if it.Status() == berth.StatusFailed {
		return tool.Failed
	}
	return tool.OK
}
