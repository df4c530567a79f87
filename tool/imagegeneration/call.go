package imagegeneration

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// Limits of one call.
const (
	maxPrompt = 32_000   // characters, as OpenAI's
	maxImage  = 32 << 20 // of one image in base64, in bytes
	maxImages = 16       // to edit, as OpenAI's
	maxEdited = 64 << 20 // of all images to edit, in bytes
	maxReason = 500      // of an upstream's message, in bytes
)

// A call generates one image. Its item holds the image.
type call struct {
	tool    *Tool
	item    berth.ImageGenerationCall
	images  []int  // to edit, as the model numbered them
	started bool   // the event of its start was returned
	invalid string // why the arguments cannot be used
}

func (c *call) Item() berth.Item { return berth.NewItem(c.item) }

// Mark implements tool.Markable.
func (c *call) Mark(why berth.CallBerth) {
	c.item.Berth = &berth.ImageGenerationBerth{CallBerth: why}
}

func (c *call) event(t berth.EventType) berth.Event {
	return berth.Event{Type: t, ItemID: c.item.ID}
}

func (c *call) Write(string) []berth.Event {
	if c.started {
		return nil
	}
	c.started = true
	return []berth.Event{c.event(berth.EventImageInProgress)}
}

func (c *call) Close(arguments string) ([]berth.Event, berth.Item, string) {
	var a struct {
		Prompt string `json:"prompt"`
		Images []int  `json:"images"`
	}
	err := json.Unmarshal([]byte(arguments), &a)
	switch {
	case err != nil:
		c.invalid = fmt.Sprintf("The arguments of this call are not valid: %v.", err)
	case strings.TrimSpace(a.Prompt) == "":
		c.invalid = `This call has no description of an image. Give it in "prompt".`
	case utf8.RuneCountInString(a.Prompt) > maxPrompt:
		c.invalid = fmt.Sprintf("The prompt has more than %d characters. Send a shorter one.", maxPrompt)
	case len(a.Images) > maxImages:
		c.invalid = fmt.Sprintf("At most %d images can be edited at once.", maxImages)
	default:
		c.item.RevisedPrompt, c.images = a.Prompt, a.Images
	}
	return c.Write(""), c.Item(), ""
}

// Run generates the image. What the model got wrong, and what the upstream did not do, is
// output.
func (c *call) Run(ctx context.Context, out tool.Emitter) error {
	c.item.Status = "generating"
	if err := out.Emit(ctx, out.Call(), c.event(berth.EventImageGenerating)); err != nil {
		return err
	}
	failed, err := c.generate(ctx, out)
	if err != nil {
		return err
	}
	if failed != "" {
		c.item.Status = string(berth.StatusFailed)
		if c.item.Berth == nil {
			c.item.Berth = &berth.ImageGenerationBerth{}
		}
		c.item.Berth.Error = failed
		return out.Done(ctx, out.Call(), c.Item())
	}
	c.item.Status = string(berth.StatusCompleted)
	if err := out.Emit(ctx, out.Call(), c.event(berth.EventImageCompleted)); err != nil {
		return err
	}
	return out.Done(ctx, out.Call(), c.Item())
}

// An answer is an event of the upstream's stream, or its whole answer.
type answer struct {
	Type         string `json:"type"`
	B64JSON      string `json:"b64_json"`
	PartialIndex *int   `json:"partial_image_index"`
	Background   string `json:"background"`
	OutputFormat string `json:"output_format"`
	Quality      string `json:"quality"`
	Size         string `json:"size"`
	Data         []struct {
		B64JSON       string `json:"b64_json"`
		RevisedPrompt string `json:"revised_prompt"`
	} `json:"data"`
}

// generate sets the image in the item. It returns why there is none, or an error that ends
// the response.
func (c *call) generate(ctx context.Context, out tool.Emitter) (failed string, err error) {
	if c.invalid != "" {
		return c.invalid, nil
	}
	t := c.tool
	answers, failed, err := c.ask(ctx)
	if failed != "" || err != nil {
		return failed, err
	}
	shown := 0
	for raw, err := range answers {
		if err != nil {
			return t.reason(ctx, err)
		}
		var a answer
		if err := json.Unmarshal(raw, &a); err != nil {
			return t.reason(ctx, fmt.Errorf("decode image: %w", err))
		}
		if len(a.Data) > 0 {
			a.B64JSON = a.Data[0].B64JSON
			c.item.RevisedPrompt = cmp.Or(a.Data[0].RevisedPrompt, c.item.RevisedPrompt)
		}
		isPartial := strings.HasSuffix(a.Type, ".partial_image")
		if a.B64JSON == "" || isPartial && shown >= t.image.PartialImages {
			continue // the client requested no more
		}
		if problem := check(a.B64JSON); problem != "" {
			return problem, nil
		}
		if isPartial {
			a.PartialIndex = new(shown)
			shown++
			partial := c.event(berth.EventImagePartial)
			partial.PartialImageIndex, partial.PartialImage = a.PartialIndex, a.B64JSON
			if err := out.Emit(ctx, out.Call(), partial); err != nil {
				return "", err
			}
			continue
		}
		c.item.Result = &a.B64JSON
		c.item.Background, c.item.Quality, c.item.Size = a.Background, a.Quality, a.Size
		c.item.OutputFormat = cmp.Or(a.OutputFormat, t.image.OutputFormat, "png")
	}
	if c.item.Result == nil {
		return "The upstream sent no image.", nil
	}
	return "", nil
}

// ask sends the request to the upstream: for a new image, or for an edit.
func (c *call) ask(ctx context.Context) (answers iter.Seq2[[]byte, error], failed string, err error) {
	t := c.tool
	model, fields := cmp.Or(t.image.Model, t.opts.Model), c.request()
	images, mask, err := c.pictures(ctx)
	if err != nil {
		failed, err = t.reason(ctx, err)
		return nil, failed, err
	}
	if len(images) == 0 {
		return t.opts.Images.Generate(ctx, t.caller, model, fields), "", nil
	}
	delete(fields, "moderation") // edits have none
	if t.image.InputFidelity != "" {
		fields["input_fidelity"] = berth.StringDelta(t.image.InputFidelity)
	}
	return t.opts.Images.Edit(ctx, t.caller, model, fields, images, mask), "", nil
}

// check returns why an image cannot be stored, or "".
func check(image string) string {
	if len(image) > maxImage {
		return fmt.Sprintf("The image is larger than %d bytes.", maxImage)
	}
	content, err := base64.StdEncoding.DecodeString(image)
	if err != nil || !strings.HasPrefix(http.DetectContentType(content), "image/") {
		return "The upstream sent something that is not an image."
	}
	return ""
}

// request returns the fields of the request to the upstream, besides the model.
func (c *call) request() map[string]json.RawMessage {
	image := c.tool.image
	fields := map[string]json.RawMessage{"prompt": berth.StringDelta(c.item.RevisedPrompt), "n": json.RawMessage("1")}
	for field, value := range map[string]string{"quality": image.Quality, "size": image.Size,
		"background": image.Background,
		"moderation": image.Moderation, "output_format": image.OutputFormat} {
		if value != "" {
			fields[field] = berth.StringDelta(value)
		}
	}
	if image.OutputCompression != nil {
		fields["output_compression"] = fmt.Append(nil, *image.OutputCompression)
	}
	if image.PartialImages > 0 {
		fields["stream"], fields["partial_images"] = json.RawMessage("true"), fmt.Append(nil, image.PartialImages)
	}
	return fields
}

// reason returns an error as a text for the model. The end of ctx ends the response.
func (t *Tool) reason(ctx context.Context, err error) (string, error) {
	if cause := context.Cause(ctx); cause != nil {
		return "", cause
	}
	if own, ok := errors.AsType[*berth.Error](err); ok && own.Code != berth.CodeInternal {
		return plain(own.Message), nil
	}
	cmp.Or(t.opts.Log, slog.Default()).Error("failed to generate image", "err", err)
	return "It failed for a reason that the server's log has.", nil
}

// plain returns the start of an upstream's message without control characters.
func plain(message string) string {
	message = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, message)
	if len(message) <= maxReason {
		return message
	}
	return strings.ToValidUTF8(message[:maxReason], "") + "…"
}
