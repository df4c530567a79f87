package transcript

import (
	"context"
	"slices"

	"github.com/berth-run/berth"
)

// resolve replaces references by the items that they name, from any response or
// conversation of the project. It drops a reference to an item of the chain. It also
// fetches the files that the input refers to by URL.
func (s *Service) resolve(ctx context.Context, p berth.ProjectID, input, chain []berth.Item) ([]berth.Item, error) {
	input, err := s.FetchFiles(ctx, input)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, it := range input {
		if it.Type() == berth.ItemReference {
			ids = append(ids, it.ID())
		}
	}
	if len(ids) == 0 {
		return input, nil
	}
	inChain := make(map[string]bool, len(chain))
	for _, it := range chain {
		inChain[it.ID()] = true
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return inChain[id] })
	found, err := s.Responses.Items(ctx, p, ids)
	if err != nil {
		return nil, err
	}
	out := make([]berth.Item, 0, len(input))
	for _, it := range input {
		if it.Type() != berth.ItemReference {
			out = append(out, it)
			continue
		}
		if inChain[it.ID()] {
			continue
		}
		named, ok := found[it.ID()]
		if !ok {
			return nil, itemNotFound(it.ID())
		}
		out = append(out, named)
	}
	return out, nil
}

func itemNotFound(id string) error {
	return &berth.Error{Code: berth.CodeNotFound, Param: "input",
		Message: "Item with id '" + id +
			"' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."}
}
