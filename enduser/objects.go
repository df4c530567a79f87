package enduser

import (
	"context"
	"fmt"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Owned returns a page of what belongs to a user of a project, and whether there is more. It has no snapshots:
// each of them names the user of its container.
func (s *Service) Owned(ctx context.Context, p berth.ProjectID, id berth.EndUserID,
	page store.Page) ([]*berth.EndUserObject, bool, error) {
	if _, err := s.Get(ctx, p, id); err != nil {
		return nil, false, err
	}
	links, more, err := s.Objects.ListObjects(ctx, p, store.KindEndUserLink, string(id), page)
	if err != nil {
		return nil, false, fmt.Errorf("list what belongs to end user %s: %w", id, err)
	}
	list := make([]*berth.EndUserObject, len(links))
	for i, link := range links {
		prefix := s.prefix(link.ID)
		list[i] = &berth.EndUserObject{ID: strings.TrimPrefix(link.ID, chosenByClient(prefix)),
			Object: "end_user.object", Type: kindOf(prefix), CreatedAt: link.CreatedAt, Link: link.ID}
	}
	return list, more, nil
}

// prefix returns the longest prefix of a link that says what deletes the object, or "".
func (s *Service) prefix(link string) string {
	longest := ""
	for known := range s.Removers {
		if strings.HasPrefix(link, known) && len(known) > len(longest) {
			longest = known
		}
	}
	return longest
}
