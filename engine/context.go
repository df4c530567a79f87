package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// MaxInlineFile bounds a file that a message carries to the model, in bytes.
const MaxInlineFile = 32 << 20

// request is what the provider gets for the next turn.
func (r *run) request(ctx context.Context, first bool, limit int) (*model.Request, error) {
	body := r.writer.Body()
	items, err := r.context(body.Output)
	if err != nil {
		return nil, err
	}
	if items, err = r.engine.lower(ctx, r.record.Project, slices.Concat(r.record.Request.PromptItems, items)); err != nil {
		return nil, err
	}
	out := newRequest(r.record.Request, &body, items)
	out.Model, out.MaxOutputTokens = r.upstream, limit
	out.Instructions = r.instructed(out.Instructions)
	out.Tools, out.ToolChoice = r.offered(first)
	out.Tools = r.tools.advise(out.Tools, r.upstream)
	return out, nil
}

// context is what the conversation so far leaves to the next turn.
func (r *run) context(output []berth.Item) ([]berth.Item, error) {
	return r.engine.unfold(r.record.Project, slices.Concat(r.history, r.withAsides(output)))
}

// newRequest is what a request asks of a provider with the lowered items, but for
// what changes from turn to turn.
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

// unseen are items that say nothing to a model.
var unseen = map[berth.ItemType]bool{berth.ItemCompactionTrigger: true, berth.ItemAdditionalTools: true, berth.ItemConfigurationUpdate: true}

// lower returns items as a provider takes them: calls of hosted tools as
// function calls, file ids replaced by data, and without what was left half done.
func (e *Engine) lower(ctx context.Context, p berth.ProjectID, items []berth.Item) ([]berth.Item, error) {
	items, err := e.unfold(p, items)
	if err != nil {
		return nil, err
	}
	items = settled(e.Tools, items)
	answers := answersOf(e.Tools, items)
	out := make([]berth.Item, 0, len(items))
	for i, it := range items {
		_, answered := answers[i]
		if it.Status() == berth.StatusIncomplete && !answered && !e.Tools.IsOutput(it) && !wasCut(e.Tools, items, i) || unseen[it.Type()] {
			continue
		}
		if it.Type() == berth.ItemReasoning {
			it = e.revealThought(p, it)
		}
		if bytes.Contains(it.Raw(), []byte(`"file_id"`)) || bytes.Contains(it.Raw(), []byte(`"file_url"`)) {
			var err error
			if it, err = e.inline(ctx, p, it); err != nil {
				return nil, err
			}
		}
		low, err := e.Tools.Lower(it)
		if err != nil {
			return nil, fmt.Errorf("item %s: %w", it.ID(), err)
		}
		out = append(out, low)
	}
	return out, nil
}

// wasCut reports whether the incomplete item at i is a message that the model was stopped
// in, by max_output_tokens for example: it is what the model said. A message after which
// the model was asked again is a leftover of a turn that broke off; what it said then
// follows, or nothing yet.
func wasCut(tools *tool.Registry, items []berth.Item, i int) bool {
	if items[i].Type() != berth.ItemMessage || i+1 == len(items) {
		return false
	}
	next := items[i+1]
	return next.Type() != berth.ItemReasoning && next.Role() != "assistant" && !tools.IsCall(next)
}

// parts returns the parts of a message's content, or of a call's output, and the name of
// the field that holds them. A bare string has none.
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

// inline replaces the file ids in a message, or in a call's output, by what is in
// the files. It removes the URLs of files whose content is there: see FetchFiles.
func (e *Engine) inline(ctx context.Context, p berth.ProjectID, it berth.Item) (berth.Item, error) {
	field, parts := parts(e.Tools, it)
	changed := false
	for _, part := range parts {
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
		name, url, err := e.openInline(ctx, p, id)
		if err != nil {
			return it, err
		}
		data := "file_data"
		if kind == "input_image" {
			data = "image_url"
		} else {
			part["filename"] = berth.StringDelta(name)
		}
		part[data] = berth.StringDelta(url)
		delete(part, "file_id")
		changed = true
	}
	if !changed {
		return it, nil
	}
	return it.With(map[string]any{field: parts})
}

// openInline returns a file's name and its content as a data: URL.
func (e *Engine) openInline(ctx context.Context, p berth.ProjectID, id berth.FileID) (name, url string, err error) {
	body, f, err := e.Files.Open(ctx, p, id)
	if err != nil {
		return "", "", err
	}
	defer body.Close()
	if f.Bytes > MaxInlineFile {
		return "", "", berth.Errorf(berth.CodeTooLarge, "File '%s' has %d bytes; a message can carry %d. Give it to a container with file_ids instead.", id, f.Bytes, MaxInlineFile)
	}
	data, err := io.ReadAll(io.LimitReader(body, MaxInlineFile))
	if err != nil {
		return "", "", err
	}
	return f.Filename, dataURL(f.Filename, data), nil
}

// answersOf returns the places of the outputs of calls, by the places of the calls. A
// model may use one call_id several times: each output belongs to the first call that
// has none, and to one that the model did not finish only if there is no other.
func answersOf(tools *tool.Registry, items []berth.Item) map[int]int {
	open := map[string][]int{} // calls without an output, by call_id
	answers := map[int]int{}
	for i, it := range items {
		id := it.CallID()
		switch {
		case tools.IsCall(it):
			open[id] = append(open[id], i)
		case tools.IsOutput(it) && len(open[id]) > 0:
			n := max(0, slices.IndexFunc(open[id], func(c int) bool { return wasMade(tools, items[c]) }))
			answers[open[id][n]] = i
			open[id] = slices.Delete(open[id], n, n+1)
		}
	}
	return answers
}

// wasMade reports whether a call was finished by the model.
func wasMade(tools *tool.Registry, it berth.Item) bool {
	return it.Status() != berth.StatusIncomplete || markOf(tools, it).Invalid != ""
}

// unanswered returns the calls among items that have no output.
func unanswered(tools *tool.Registry, items []berth.Item) []berth.Item {
	answers := answersOf(tools, items)
	var calls []berth.Item
	for i, it := range items {
		if _, answered := answers[i]; tools.IsCall(it) && !answered {
			calls = append(calls, it)
		}
	}
	return calls
}

// waitsForClient reports whether the response has calls that only the client can
// answer, or approve of. Hosted calls have been answered when it is asked.
func (r *run) waitsForClient(body berth.Response) bool {
	return slices.ContainsFunc(body.Output, asksForApproval) || slices.ContainsFunc(unanswered(r.engine.Tools, body.Output), func(it berth.Item) bool {
		return it.Status() == berth.StatusCompleted
	})
}
