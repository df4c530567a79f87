package transcript

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// MaxInlineFile is the maximum size of a file in a message to the model, in bytes.
const MaxInlineFile = 32 << 20

// unseen are the types of items that a model is not shown.
var unseen = map[berth.ItemType]bool{berth.ItemCompactionTrigger: true, berth.ItemAdditionalTools: true,
	berth.ItemConfigurationUpdate: true}

// lower returns items in the form of a provider's request: calls of tools are function
// calls, file ids are replaced by data, and unfinished items are removed.
func (t *Transcript) lower(ctx context.Context, items []berth.Item) ([]berth.Item, error) {
	items, err := t.unfold(items)
	if err != nil {
		return nil, err
	}
	tools := t.service.Tools
	items = OfModel(tools, settled(tools, items))
	outputs := Outputs(tools, items)
	native := t.natives(items, outputs)
	out := make([]berth.Item, 0, len(items))
	for i, it := range items {
		_, answered := outputs[i]
		if it.Status() == berth.StatusIncomplete && !answered && !tools.IsOutput(it) && !wasCut(tools, items, i) ||
			unseen[it.Type()] || tools.IsListing(it) {
			continue
		}
		show := t.lowerItem
		if native[i] {
			show = t.native
		}
		low, err := show(ctx, it)
		if err != nil {
			return nil, t.atInput(it, err)
		}
		if out = append(out, low); native[i] {
			continue
		}
		if answered && tools.HoldsOutput(it) {
			answer, err := tools.LowerAnswer(it)
			if err != nil {
				return nil, fmt.Errorf("output of item %s: %w", it.ID(), err)
			}
			out = append(out, answer)
		}
	}
	return out, nil
}

// atInput returns an error about a part of an item with the item's place in the input.
func (t *Transcript) atInput(it berth.Item, err error) error {
	e, ok := errors.AsType[*partError](err)
	if !ok {
		return err
	}
	param := e.param
	for i, in := range t.Input {
		if &in.Raw()[0] == &it.Raw()[0] {
			param = fmt.Sprintf("input[%d].%s", i, param)
			break
		}
	}
	return berth.Invalid(param, "Invalid '%s': %s", param, e.reason)
}

// A partError is an error for the client about a part of an item.
type partError struct {
	param  string // from the item on: content[0].file_id
	reason string
}

func (e *partError) Error() string { return e.param + ": " + e.reason }

// lowerItem lowers one item, once in a turn.
func (t *Transcript) lowerItem(ctx context.Context, it berth.Item) (berth.Item, error) {
	if it.TextMessage() != nil { // it has no file, and is no call
		return it, nil
	}
	key := &it.Raw()[0]
	if low, ok := t.lowered[key]; ok {
		return low, nil
	}
	s, low := t.service, it
	if it.Type() == berth.ItemReasoning {
		low = s.revealThought(t.project, it)
	}
	low, err := s.Tools.Lower(low)
	if err != nil {
		return it, fmt.Errorf("item %s: %w", it.ID(), err)
	}
	if bytes.Contains(low.Raw(), []byte(`"file_id"`)) || bytes.Contains(low.Raw(), []byte(`"file_url"`)) {
		if low, err = s.inline(ctx, t.project, low); err != nil {
			return it, err
		}
	}
	t.lowered[key] = low
	return low, nil
}

// wasCut reports whether the incomplete item at i is a message that was cut off, by
// max_output_tokens for example. The model is shown such a message. It is not shown the
// rest of a turn that broke off and was retried, which more output of the model follows.
func wasCut(tools *tool.Registry, items []berth.Item, i int) bool {
	if items[i].Type() != berth.ItemMessage || i+1 == len(items) {
		return false
	}
	next := items[i+1]
	return next.Type() != berth.ItemReasoning && next.Role() != "assistant" && !tools.IsCall(next)
}

// parts returns the parts of a message's content, or of an output, and the name of their
// field. It returns no parts for a string.
func parts(tools *tool.Registry, it berth.Item) (field string, parts []map[string]json.RawMessage) {
	field = "content"
	if tools.IsOutput(it) {
		field = "output"
	}
	var fields map[string]json.RawMessage
	if it.Decode(&fields) != nil || json.Unmarshal(fields[field], &parts) != nil {
		return field, nil
	}
	return field, parts
}

// inline replaces the file ids in a message or an output by the content of the files. It
// removes the URL of a file that FetchFiles has read.
func (s *Service) inline(ctx context.Context, p berth.ProjectID, it berth.Item) (berth.Item, error) {
	field, parts := parts(s.Tools, it)
	changed := false
	for n, part := range parts {
		if part["file_url"] != nil && part["file_data"] != nil {
			delete(part, "file_url")
			changed = true
		}
		var kind string
		var id berth.FileID
		_ = json.Unmarshal(part["type"], &kind)
		if json.Unmarshal(part["file_id"], &id) != nil || id == "" {
			continue
		}
		name, content, err := s.openInline(ctx, p, id)
		if err != nil {
			return it, err
		}
		data, media := "file_data", mediaType(name)
		if kind == "input_image" {
			if data = "image_url"; !isImage(media) {
				media = sniffImage(content)
			}
			if !isImage(media) {
				return it, &partError{param: fmt.Sprintf("%s[%d].file_id", field, n),
					reason: fmt.Sprintf("the file '%s' is not an image. Send it as a part of type 'input_file'.", id)}
			}
		} else {
			part["filename"] = berth.StringDelta(name)
		}
		part[data] = berth.StringDelta(dataURL(media, content))
		delete(part, "file_id")
		changed = true
	}
	if !changed {
		return it, nil
	}
	return it.With(map[string]any{field: parts})
}

// openInline returns a file's name and its content.
func (s *Service) openInline(ctx context.Context, p berth.ProjectID, id berth.FileID) (name string, content []byte,
	err error) {
	body, f, err := s.Files.Open(ctx, p, id)
	if err != nil {
		return "", nil, err
	}
	defer body.Close()
	if f.Bytes > MaxInlineFile {
		return "", nil, berth.Errorf(berth.CodeTooLarge,
			"File '%s' has %d bytes, above the limit of %d for a file in a message. Pass it to a container with 'file_ids' instead.",
			id, f.Bytes, MaxInlineFile)
	}
	content, err = io.ReadAll(io.LimitReader(body, MaxInlineFile))
	return f.Filename, content, err
}
