package transcript

import (
	"errors"
	"fmt"
	"strings"

	"github.com/berth-run/berth"
)

// A thought is the sealed content of reasoning, which a client cannot read or change.
type thought struct {
	Content []berth.Content `json:"content"`
}

// SealThought returns reasoning as encrypted_content.
func (s *Service) SealThought(p berth.ProjectID, content []berth.Content) string {
	return s.seals.seal(p, berth.ItemReasoning, thought{content})
}

// revealThought returns reasoning with the decrypted content of its encrypted_content. It
// leaves a provider's own encrypted_content unchanged, and removes one that it cannot
// decrypt because another server has sealed it.
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

// checkSeals refuses input with sealed content that this server cannot decrypt.
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
