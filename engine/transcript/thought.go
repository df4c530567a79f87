package transcript

import (
	"errors"
	"fmt"
	"strings"

	"github.com/berth-run/berth"
)

// A thought is what the encrypted_content of reasoning holds under seal: what a
// client need not keep, and may not change, of what the model thought.
type thought struct {
	Content []berth.Content `json:"content"`
}

// SealThought returns reasoning as encrypted_content.
func (s *Service) SealThought(p berth.ProjectID, content []berth.Content) string {
	return s.seals.seal(p, berth.ItemReasoning, thought{content})
}

// revealThought gives reasoning the content that was sealed in it. A provider's own
// encrypted_content is left alone; one that cannot be opened, in a chain that
// another server began, is dropped.
func (s *Service) revealThought(p berth.ProjectID, it berth.Item) berth.Item {
	var body struct {
		EncryptedContent string `json:"encrypted_content"`
	}
	if it.Decode(&body) != nil || !strings.HasPrefix(body.EncryptedContent, sealMark) {
		return it
	}
	fields := map[string]any{"encrypted_content": nil}
	var t thought
	if s.seals.open(p, it, &t) == nil && len(t.Content) > 0 {
		fields["content"] = t.Content
	}
	out, err := it.With(fields)
	if err != nil {
		return it // unreachable: it decoded
	}
	return out
}

// checkSeals refuses input with encrypted_content that was to be this server's and
// cannot be opened.
func (s *Service) checkSeals(p berth.ProjectID, input []berth.Item) error {
	for i, it := range input {
		var into any = new(thought)
		switch it.Type() {
		case berth.ItemCompaction:
			into = new(Checkpoint)
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
		if err := s.seals.open(p, it, into); err != nil {
			if known, ok := errors.AsType[*berth.Error](err); ok {
				known.Param = fmt.Sprintf("input[%d].encrypted_content", i)
			}
			return err
		}
	}
	return nil
}
