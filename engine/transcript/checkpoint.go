package transcript

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// compactedPrompt introduces a summary to the model.
//
//go:embed compacted.md
var compactedPrompt string

const (
	// maxKept is the number of tokens of messages that survive a compaction verbatim, as
	// in the hosted service.
	maxKept = 64_000
	// minCut is the minimum number of tokens that remain of a shortened message.
	minCut = 64
	// maxKeptRaw bounds each surviving message in bytes, because images are inline data.
	maxKeptRaw = 1 << 20
)

// A Checkpoint is the sealed content of a compaction item.
type Checkpoint struct {
	Summary string       `json:"summary"`
	Kept    []berth.Item `json:"kept"` // messages that survive verbatim

	// Replaces means that no item before the compaction is part of the context. If false,
	// the client's own messages before the compaction are, or Kept if there are none.
	Replaces bool `json:"replaces"`
}

// unfold replaces compaction items by their content, and removes the items that they
// replace.
func (t *Transcript) unfold(items []berth.Item) ([]berth.Item, error) {
	if !slices.ContainsFunc(items, IsCompaction) {
		return items, nil
	}
	out := make([]berth.Item, 0, len(items))
	for _, it := range items {
		if !IsCompaction(it) {
			out = append(out, it)
			continue
		}
		c, err := t.checkpoint(it)
		if err != nil {
			return nil, err
		}
		if c.Replaces {
			out = out[:0]
		}
		if !slices.ContainsFunc(out, isUsers) {
			instructed := len(out) > 0 // the client has put instructions before it
			for _, kept := range c.Kept {
				if !instructed || isUsers(kept) {
					out = append(out, kept)
				}
			}
		}
		out = append(out, berth.NewItem(berth.Message{ID: it.ID(), Type: berth.ItemMessage,
			Status: berth.StatusCompleted, Role: "user",
			Content: []berth.Content{{Type: "input_text", Text: compactedPrompt + "\n" + c.Summary}}}))
	}
	return out, nil
}

// checkpoint decrypts a compaction item, once in a turn.
func (t *Transcript) checkpoint(it berth.Item) (Checkpoint, error) {
	key := &it.Raw()[0]
	if c, ok := t.checkpoints[key]; ok {
		return c, nil
	}
	var c Checkpoint
	err := t.service.seals.open(t.project, it, &c)
	if err == nil {
		t.checkpoints[key] = c
	}
	return c, err
}

// Compaction returns the compaction item of a checkpoint.
func (s *Service) Compaction(p berth.ProjectID, c Checkpoint) berth.Item {
	return berth.NewItem(berth.Compaction{ID: berth.NewID(berth.PrefixCompaction), Type: berth.ItemCompaction,
		EncryptedContent: s.seals.seal(p, berth.ItemCompaction, c)})
}

// Summary returns the summary of a compaction item. The error is for the client.
func (s *Service) Summary(p berth.ProjectID, it berth.Item) (string, error) {
	var c Checkpoint
	err := s.seals.open(p, it, &c)
	return c.Summary, err
}

// IsCompaction reports whether an item is a compaction.
func IsCompaction(it berth.Item) bool { return it.Type() == berth.ItemCompaction }

// isUsers reports whether an item is a message of the user, not a summary.
func isUsers(it berth.Item) bool { return it.Role() == "user" && !isSummary(it) }

// isSummary reports whether an item is a message that unfold has made of a compaction.
func isSummary(it berth.Item) bool {
	return it.Type() == berth.ItemMessage && strings.HasPrefix(it.ID(), berth.PrefixCompaction)
}

// sinceCompaction returns before and output from the last compaction in output on, or all
// items if there is none. It may append to before.
func sinceCompaction(before, output []berth.Item) []berth.Item {
	for i := len(output) - 1; i >= 0; i-- {
		if IsCompaction(output[i]) {
			return slices.Clone(output[i:])
		}
	}
	return append(before, output...)
}

// Survivors returns the messages among unfolded items that survive a compaction verbatim:
// all instructions, and the newest messages of the user within a budget of tokens. A
// message that does not fit is shortened.
func Survivors(items []berth.Item, budget int) []berth.Item {
	var kept []berth.Item
	for _, it := range slices.Backward(items) {
		switch {
		case it.Role() == "system" || it.Role() == "developer":
			kept = append(kept, it)
		case isUsers(it) && budget >= minCut:
			if len(it.Raw()) > maxKeptRaw {
				it = cut(it, budget)
			}
			n := model.EstimateItem(it)
			if n > budget {
				it, n = cut(it, budget), budget
			}
			budget -= n
			kept = append(kept, it)
		}
	}
	slices.Reverse(kept)
	return kept
}

// cut returns a message shortened to about this number of tokens, with the beginning and
// the end of its text.
func cut(it berth.Item, tokens int) berth.Item {
	var m berth.Message
	if it.Decode(&m) != nil {
		return it
	}
	var texts []string
	for _, c := range m.Content {
		if c.Text != "" {
			texts = append(texts, c.Text)
		}
	}
	text := strings.Join(texts, "\n")
	m.Content = []berth.Content{{Type: "input_text", Text: text}}
	whole := berth.NewItem(m)
	n := model.EstimateItem(whole)
	if n <= tokens {
		return whole
	}
	runes := []rune(text)
	half := int(float64(len(runes)) * float64(tokens) / float64(n) / 2)
	m.Content[0].Text = string(runes[:half]) + "\n[… left out …]\n" + string(runes[len(runes)-half:])
	return berth.NewItem(m)
}
