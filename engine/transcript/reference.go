package transcript

import (
	"context"
	"slices"

	"github.com/berth-run/berth"
)

// resolve replaces references by the items that they name, whichever response or
// conversation of the project has them. One that the context has already adds
// nothing to it. It reads the files that the input names by URL.
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
	there := make(map[string]bool, len(chain))
	for _, it := range chain {
		there[it.ID()] = true
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return there[id] })
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
		if there[it.ID()] {
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
		Message: "Item with id '" + id + "' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."}
}
