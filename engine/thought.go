package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// includeThought is the value of "include" that asks for encrypted_content.
const includeThought = "reasoning.encrypted_content"

// A thought is what the encrypted_content of reasoning holds under seal: what a
// client need not keep, and may not change, of what the model thought.
type thought struct {
	Content []berth.Content `json:"content"`
}

// sealThought returns what makes the encrypted_content of reasoning, or nil if the
// client did not ask for it.
func (r *run) sealThought() func([]berth.Content) string {
	if !slices.Contains(r.record.Request.Include, includeThought) {
		return nil
	}
	return func(content []berth.Content) string {
		return r.engine.seals.seal(r.record.Project, berth.ItemReasoning, thought{content})
	}
}

// revealThought gives reasoning the content that was sealed in it. A provider's own
// encrypted_content is left alone; one that cannot be opened, in a chain that
// another server began, is dropped.
func (e *Engine) revealThought(p berth.ProjectID, it berth.Item) berth.Item {
	var body struct {
		EncryptedContent string `json:"encrypted_content"`
	}
	if it.Decode(&body) != nil || !strings.HasPrefix(body.EncryptedContent, sealMark) {
		return it
	}
	fields := map[string]any{"encrypted_content": nil}
	var t thought
	if e.seals.open(p, it, &t) == nil && len(t.Content) > 0 {
		fields["content"] = t.Content
	}
	return with(it, fields)
}

// checkSeals refuses input with encrypted_content that was to be this server's and
// cannot be opened.
func (e *Engine) checkSeals(p berth.ProjectID, input []berth.Item) error {
	for i, it := range input {
		var into any = new(thought)
		switch it.Type() {
		case berth.ItemCompaction:
			into = new(checkpoint)
		case berth.ItemReasoning:
			var body struct {
				EncryptedContent string `json:"encrypted_content"`
			}
			if it.Decode(&body) != nil || !strings.HasPrefix(body.EncryptedContent, sealMark) {
				continue
			}
		default:
			continue
		}
		if err := e.seals.open(p, it, into); err != nil {
			if e, ok := errors.AsType[*berth.Error](err); ok {
				e.Param = fmt.Sprintf("input[%d].encrypted_content", i)
			}
			return err
		}
	}
	return nil
}
