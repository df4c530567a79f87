package engine

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// compactedWords introduce a summary to the model.
//
//go:embed compacted.md
var compactedWords string

const (
	// maxKept bounds the messages that survive a compaction verbatim, in tokens. The
	// hosted service keeps as many.
	maxKept = 64_000
	// minCut is what must be left of a message that is cut, in tokens.
	minCut = 64
	// maxKeptRaw bounds each, in bytes: images come as data.
	maxKeptRaw = 1 << 20
)

// A checkpoint is what a compaction item holds under seal.
type checkpoint struct {
	Summary string       `json:"summary"`
	Kept    []berth.Item `json:"kept"` // messages that survive verbatim

	// Replaces says that no item before the compaction is context any more. Without
	// it the client rules over what comes before: messages that it put there, or
	// Kept if there are none.
	Replaces bool `json:"replaces"`
}

// unfold puts in the place of compaction items what is in them. Items that have
// been replaced are gone.
func (e *Engine) unfold(p berth.ProjectID, items []berth.Item) ([]berth.Item, error) {
	if !slices.ContainsFunc(items, isCompaction) {
		return items, nil
	}
	out := make([]berth.Item, 0, len(items))
	for _, it := range items {
		if !isCompaction(it) {
			out = append(out, it)
			continue
		}
		var c checkpoint
		if err := e.seals.open(p, it, &c); err != nil {
			return nil, err
		}
		if c.Replaces {
			out = out[:0]
		}
		if !slices.ContainsFunc(out, isUsers) {
			led := len(out) > 0 // by instructions of the client's own
			for _, kept := range c.Kept {
				if !led || isUsers(kept) {
					out = append(out, kept)
				}
			}
		}
		out = append(out, berth.NewItem(berth.Message{ID: it.ID(), Type: berth.ItemMessage, Status: berth.StatusCompleted, Role: "user",
			Content: []berth.Content{{Type: "input_text", Text: compactedWords + "\n" + c.Summary}}}))
	}
	return out, nil
}

func isCompaction(it berth.Item) bool { return it.Type() == berth.ItemCompaction }

// isUsers reports whether an item is a message of the user's own.
func isUsers(it berth.Item) bool { return it.Role() == "user" && !isSummary(it) }

// isSummary reports whether an item is what unfold made of a compaction.
func isSummary(it berth.Item) bool {
	return it.Type() == berth.ItemMessage && strings.HasPrefix(it.ID(), berth.PrefixCompaction)
}

// sinceCompaction returns what responses leave to those that continue them, where
// output is the last one's: what is before a compaction has been summed up in it. It
// may append to before.
func sinceCompaction(before, output []berth.Item) []berth.Item {
	for i := len(output) - 1; i >= 0; i-- {
		if isCompaction(output[i]) {
			return slices.Clone(output[i:])
		}
	}
	return append(before, output...)
}

// survivors returns the messages among unfolded items that a compaction keeps:
// all instructions, and of the user's as many as fit into so many tokens, from the
// newest on. The one that does not fit whole is cut.
func survivors(items []berth.Item, budget int) []berth.Item {
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

// cut returns a message of about so many tokens: the beginning and the end of its
// text.
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
