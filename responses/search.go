package responses

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// matching returns the responses of a page that have called a query's tool and have its words in their texts: the
// messages of their own input and their output, and the commands and code of calls. The case of letters does not count.
// Texts are sealed and have no index, so each response of the page is opened.
func (s *Store) matching(ctx context.Context, p berth.ProjectID, page []*Summary,
	q Query) ([]*Summary, error) {
	words := strings.ToLower(q.Words)
	var found []*Summary
	for _, r := range page {
		rec, err := s.store.GetResponse(ctx, p, r.ID)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted since the page was read
		}
		if err != nil {
			return nil, err
		}
		if (contain(rec.Input, words) || contain(rec.Body.Output, words)) && calls(rec.Body.Output, q.Tool) {
			found = append(found, r)
		}
	}
	return found, nil
}

// calls reports whether an output has a call of a tool; any output has one of "".
func calls(output []berth.Item, tool string) bool {
	return tool == "" || slices.ContainsFunc(output, func(it berth.Item) bool { return it.Tool() == tool })
}

// contain reports whether a text of items contains words, which are in lower case. All items contain "".
func contain(items []berth.Item, words string) bool {
	if words == "" {
		return true
	}
	for _, it := range items {
		for _, text := range textsOf(it) {
			if strings.Contains(strings.ToLower(text), words) {
				return true
			}
		}
	}
	return false
}

// textsOf returns the texts of an item that are searched.
func textsOf(it berth.Item) (texts []string) {
	switch it.Type() {
	case berth.ItemMessage:
		var m berth.Message
		if it.Decode(&m) == nil {
			for _, c := range m.Content {
				texts = append(texts, c.Text, c.Refusal)
			}
		}
	case berth.ItemShellCall:
		var call berth.ShellCall
		if it.Decode(&call) == nil {
			texts = call.Action.Commands
		}
	case berth.ItemCodeInterpreterCall:
		var call berth.CodeInterpreterCall
		if it.Decode(&call) == nil {
			texts = []string{call.Code}
		}
	}
	return texts
}
