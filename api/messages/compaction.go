package messages

import (
	"encoding/json"
	"strings"

	"github.com/berth-run/berth"
)

// The edit compact_20260112 is a compaction of the engine, whose item is the block of the answer.

// compacted is the prefix of the encrypted content of compactions that this server has made.
const compacted = "berth.compaction.1."

type (
	compactionOutput struct {
		Type             string  `json:"type"` // "compaction"
		Content          *string `json:"content"`
		EncryptedContent *string `json:"encrypted_content"`
	}
	compactionDelta struct {
		Type             string  `json:"type"` // "compaction_delta"
		Content          *string `json:"content"`
		EncryptedContent *string `json:"encrypted_content"`
	}
)

// compaction returns the compaction that the edits ask for.
func (m *messageRequest) compaction() []berth.ContextManagement {
	for _, e := range m.ContextManagement.Edits {
		if e.Type != editCompact {
			continue
		}
		threshold := defaultCompact
		if e.Trigger != nil {
			threshold = e.Trigger.Value
		}
		return []berth.ContextManagement{{Type: "compaction", CompactThreshold: &threshold,
			Edit: &berth.CompactionEdit{Instructions: e.Instructions, Pause: e.Pause}}}
	}
	return nil
}

// compaction returns the block of a compaction.
func (s *servedItem) compaction(it berth.Item) (compactionOutput, error) {
	var c berth.Compaction
	if err := it.Decode(&c); err != nil {
		return compactionOutput{}, err
	}
	summary, err := s.summary(it)
	sealed := compacted + c.EncryptedContent
	return compactionOutput{"compaction", &summary, &sealed}, err
}

// compacted adds a compaction of an earlier answer, which replaces what comes before it. Of one that another server has
// made, only the summary can be read. One without a summary has failed.
func (h *history) compacted(b *contentBlock) {
	if rest, ours := strings.CutPrefix(b.Encrypted, compacted); ours {
		h.add(berth.Compaction{ID: berth.NewID(berth.PrefixCompaction), Type: berth.ItemCompaction,
			EncryptedContent: rest})
		return
	}
	var summary string
	if json.Unmarshal(b.Content, &summary) != nil || summary == "" {
		return
	}
	h.items, h.places = []berth.Item{}, nil
	h.add(berth.Message{Type: berth.ItemMessage, Role: "user", Content: []berth.Content{{Type: "input_text",
		Text: tagged("summary", nil, summary)}}})
}
