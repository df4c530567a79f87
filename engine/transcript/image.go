package transcript

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/berth-run/berth"
)

// maxImages bounds the images that Images returns.
const maxImages = 256

// Image returns an uploaded image as a data: URL. Errors are for the client.
func (t *Transcript) Image(ctx context.Context, id berth.FileID) (string, error) {
	name, content, err := t.service.openInline(ctx, t.project, id)
	if err != nil {
		return "", err
	}
	media := mediaType(name)
	if !isImage(media) {
		media = sniffImage(content)
	}
	if !isImage(media) {
		return "", berth.Invalid("file_id", "The file '%s' is not an image.", id)
	}
	return dataURL(media, content), nil
}

// Images returns the images of the messages and of finished image_generation_calls that
// the model sees in a response with this output, in order, as data: URLs or links.
func (t *Transcript) Images(ctx context.Context, output []berth.Item) ([]string, error) {
	view, err := t.View(ctx, output)
	if err != nil {
		return nil, err
	}
	var urls []string
	for _, it := range view.Items {
		found, err := t.imagesOf(ctx, it)
		if err != nil {
			return nil, err
		}
		if urls = append(urls, found...); len(urls) > maxImages {
			return nil, berth.Invalid("input", "The conversation has more than %d images.", maxImages)
		}
	}
	return urls, nil
}

// imagesOf returns the images of one item.
func (t *Transcript) imagesOf(ctx context.Context, it berth.Item) (urls []string, err error) {
	switch {
	case it.Type() == berth.ItemImageGenerationCall:
		var c berth.ImageGenerationCall
		if err := it.Decode(&c); err != nil {
			return nil, fmt.Errorf("decode image generation call: %w", err)
		}
		if c.Result == nil || *c.Result == "" {
			return nil, nil
		}
		format := c.OutputFormat
		if format == "" {
			format = "png"
		}
		return []string{"data:image/" + format + ";base64," + *c.Result}, nil
	case it.Type() != berth.ItemMessage && it.Type() != "" || !bytes.Contains(it.Raw(), []byte(`"input_image"`)):
		return nil, nil
	}
	low, err := t.lowerItem(ctx, it)
	if err != nil {
		return nil, err
	}
	var m berth.Message
	if err := low.Decode(&m); err != nil {
		return nil, fmt.Errorf("decode message: %w", err)
	}
	for _, part := range m.Content {
		if part.Type == "input_image" && part.ImageURL != "" {
			urls = append(urls, part.ImageURL)
		}
	}
	return urls, nil
}

// natives returns the places of the calls that stay as they are, because the upstream has
// their tool itself, and of their outputs. A call that failed or has no output is lowered:
// an upstream refuses such calls.
func (t *Transcript) natives(items []berth.Item, outputs map[int]int) map[int]bool {
	if t.Native == nil {
		return nil
	}
	tools, native := t.service.Tools, map[int]bool{}
	for call, output := range outputs {
		if t.Native(tools.Name(items[call])) && hasImage(items[output]) {
			native[call], native[output] = true, true
		}
	}
	return native
}

// hasImage reports whether the output of a call has an image.
func hasImage(it berth.Item) bool {
	var c berth.ImageGenerationCall
	return it.Type() != berth.ItemImageGenerationCall || it.Decode(&c) == nil && c.Result != nil && *c.Result != ""
}

// native returns an item as an upstream gets it that has its tool: a screenshot that is a
// file as an image.
func (t *Transcript) native(ctx context.Context, it berth.Item) (berth.Item, error) {
	var out berth.ComputerCallOutput
	if it.Type() != berth.ItemComputerCallOutput || it.Decode(&out) != nil || out.Output.FileID == "" {
		return it, nil
	}
	low, err := t.lowerItem(ctx, it)
	if err != nil {
		return it, err
	}
	var lowered struct {
		Output []struct {
			ImageURL json.RawMessage `json:"image_url"`
		} `json:"output"`
	}
	if err := low.Decode(&lowered); err != nil || len(lowered.Output) == 0 {
		return it, fmt.Errorf("decode screenshot: %w", err)
	}
	return it.With(map[string]any{"output": map[string]any{"type": out.Output.Type,
		"image_url": lowered.Output[0].ImageURL}})
}
