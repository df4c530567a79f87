package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite/query"
)

func (d responses) Items(ctx context.Context, p berth.ProjectID, ids []string) (map[string]berth.Item, error) {
	found := make(map[string]berth.Item, len(ids))
	places := map[string][]string{} // item ids by response
	for _, id := range ids {
		response, err := d.queries.ItemPlace(ctx, query.ItemPlaceParams{Project: string(p), ID: id})
		switch {
		case err == nil:
			places[response] = append(places[response], id)
			continue
		case errors.Is(err, sql.ErrNoRows):
			err = d.conversationItem(ctx, p, id, found)
		}
		if err != nil {
			return nil, d.wrap(err)
		}
	}
	for response, ids := range places {
		if err := d.itemsOf(ctx, response, ids, found); err != nil {
			return nil, d.wrap(err)
		}
	}
	return found, nil
}

// itemsOf finds items in a response's input and output.
func (d responses) itemsOf(ctx context.Context, response string, ids []string, found map[string]berth.Item) error {
	row, err := d.queries.ItemsOf(ctx, response)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // deleted just now
	}
	if err != nil {
		return err
	}
	input, output, err := d.keys.Opener().Items(ctx, row.Input, row.Output)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return d.damaged("response "+response+": ", err)
	}
	for _, it := range slices.Concat(input, output) {
		if slices.Contains(ids, it.ID()) {
			found[it.ID()] = it
		}
	}
	return nil
}

// conversationItem finds an item in any conversation.
func (d responses) conversationItem(ctx context.Context, p berth.ProjectID, id string,
	found map[string]berth.Item) error {
	body, err := d.queries.ObjectOfKind(ctx, query.ObjectOfKindParams{Project: string(p), ID: id,
		Kind: string(store.KindConversationItem)})
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	it, err := d.keys.Opener().Item(ctx, body)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return d.damaged("item "+id+": ", err)
	}
	found[id] = *it
	return nil
}

// addItems indexes items by their ids.
func addItems(ctx context.Context, q *query.Queries, p berth.ProjectID, response berth.ResponseID,
	items []berth.Item) error {
	for _, it := range items {
		if it.ID() == "" {
			continue
		}
		if err := q.AddItem(ctx, query.AddItemParams{Project: string(p), ID: it.ID(),
			Response: string(response)}); err != nil {
			return err
		}
	}
	return nil
}
