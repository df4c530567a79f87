package sql

import (
	"context"
	"errors"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

func (d responses) Items(ctx context.Context, p berth.ProjectID, ids []string) (map[string]berth.Item, error) {
	found := make(map[string]berth.Item, len(ids))
	places := map[string][]string{} // item ids by response
	for _, id := range ids {
		var response string
		err := d.read(ctx, `SELECT response FROM items WHERE project = $1 AND id = $2`, in{string(p), id}, &response)
		switch {
		case err == nil:
			places[response] = append(places[response], id)
			continue
		case errors.Is(err, store.ErrNotFound):
			err = d.conversationItem(ctx, p, id, found)
		}
		if err != nil {
			return nil, err
		}
	}
	for response, ids := range places {
		if err := d.itemsOf(ctx, response, ids, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// itemsOf finds items in a response's input and output.
func (d responses) itemsOf(ctx context.Context, response string, ids []string, found map[string]berth.Item) error {
	var inputBox, outputBox []byte
	err := d.read(ctx, `SELECT q.input, b.output FROM requests q JOIN bodies b ON b.response = q.response
		WHERE q.response = $1`, in{response}, &inputBox, &outputBox)
	if errors.Is(err, store.ErrNotFound) {
		return nil // deleted just now
	}
	if err != nil {
		return err
	}
	input, output, err := d.keys.Opener().Items(ctx, inputBox, outputBox)
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
	var box []byte
	err := d.read(ctx, `SELECT body FROM objects WHERE project = $1 AND id = $2 AND kind = $3 LIMIT 1`,
		in{p, id, store.KindConversationItem}, &box)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	it, err := d.keys.Opener().Item(ctx, box)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return d.damaged("item "+id+": ", err)
	}
	found[id] = *it
	return nil
}

// addItems indexes items by their ids, unless another response has them.
func addItems(ctx context.Context, tx *Tx, p berth.ProjectID, response berth.ResponseID, items []berth.Item) error {
	for _, it := range items {
		if it.ID() == "" {
			continue
		}
		if err := tx.Run(ctx, `INSERT INTO items (project, id, response) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
			string(p), it.ID(), string(response)); err != nil {
			return err
		}
	}
	return nil
}
