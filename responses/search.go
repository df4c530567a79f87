package responses

import (
	"context"
	"errors"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// matching returns the responses of a page that have words in their texts: the messages of their own
// input and their output, and the commands and code of calls. The case of letters does not count.
// Texts are sealed and have no index, so each response of the page is opened.
func (s *Store) matching(ctx context.Context, p berth.ProjectID, page []*berth.Response,
	words string) ([]*berth.Response, error) {
	words = strings.ToLower(words)
	var found []*berth.Response
	for _, r := range page {
		rec, err := s.store.GetResponse(ctx, p, r.ID)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted since the page was read
		}
		if err != nil {
			return nil, err
		}
		if contain(rec.Input, words) || contain(rec.Body.Output, words) {
			found = append(found, r)
		}
	}
	return found, nil
}

// contain reports whether a text of items contains words, which are in lower case.
func contain(items []berth.Item, words string) bool {
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
