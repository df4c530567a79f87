package enduser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A spending is what a response has used for a user.
type spending struct {
	InputTokens  int64        `json:"input_tokens,omitempty"`
	OutputTokens int64        `json:"output_tokens,omitempty"`
	Cost         berth.Amount `json:"cost,omitempty"`
}

// AtEnd returns what a response of an end user adds to the user's usage, to be stored with its end. It is kept until
// the end of the next month.
func (s *Service) AtEnd(r *store.Response, final *berth.Response) []*store.Object {
	if final.Berth == nil || final.Berth.EndUser == "" {
		return nil
	}
	used := spending{}
	if u := final.Usage; u != nil {
		used.InputTokens, used.OutputTokens = int64(u.InputTokens), int64(u.OutputTokens)
	}
	cost, _ := final.Cost()
	used.Cost = cost.Value
	body, err := json.Marshal(used)
	if err != nil { // numbers always marshal
		s.Log.Error("failed to encode the usage of an end user", "response", final.ID, "err", err)
		return nil
	}
	now := s.Clock.Now()
	_, next := store.Month(now)
	_, end := store.Month(next)
	return []*store.Object{{ObjectKey: store.ObjectKey{Kind: store.KindEndUserUsage,
		Parent: string(final.Berth.EndUser), ID: string(final.ID)}, CreatedAt: now.Unix(), ExpiresAt: end.Unix(),
		Body: body}}
}

// Usage returns what was used for a user in the month of a time.
func (s *Service) Usage(ctx context.Context, p berth.ProjectID, id berth.EndUserID, at time.Time) (*berth.EndUserUsage,
	error) {
	if _, err := s.Get(ctx, p, id); err != nil {
		return nil, err
	}
	return s.usage(ctx, p, id, at)
}

func (s *Service) usage(ctx context.Context, p berth.ProjectID, id berth.EndUserID, at time.Time) (*berth.EndUserUsage,
	error) {
	month, next := store.Month(at)
	sum := &berth.EndUserUsage{Object: "end_user.usage", EndUser: id, Month: month.Format("2006-01")}
	err := s.since(ctx, p, store.KindEndUserUsage, id, month, func(o *store.Object) error {
		if o.CreatedAt >= next.Unix() {
			return nil
		}
		var one spending
		if err := json.Unmarshal(o.Body, &one); err != nil {
			return fmt.Errorf("decode usage of %s: %w", o.ID, err)
		}
		sum.Responses++
		sum.InputTokens += one.InputTokens
		sum.OutputTokens += one.OutputTokens
		sum.Cost += one.Cost
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sum the usage of an end user: %w", err)
	}
	err = s.since(ctx, p, store.KindEndUserLink, id, month, func(o *store.Object) error {
		if strings.HasPrefix(o.ID, berth.PrefixContainer) && o.CreatedAt < next.Unix() {
			sum.Containers++
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count the containers of an end user: %w", err)
	}
	return sum, nil
}

// since calls f with the objects of a user of a kind that were created since a time, the newest first.
func (s *Service) since(ctx context.Context, p berth.ProjectID, kind store.Kind, id berth.EndUserID, at time.Time,
	f func(*store.Object) error) error {
	page := store.Page{Limit: 1000}
	for {
		list, more, err := s.Objects.ListObjects(ctx, p, kind, string(id), page)
		if errors.Is(err, store.ErrNotFound) {
			return nil // it has just been deleted
		}
		if err != nil {
			return err
		}
		for _, o := range list {
			// Two servers may differ by seconds in their clocks.
			if o.CreatedAt < at.Add(-time.Hour).Unix() {
				return nil
			}
			if o.CreatedAt < at.Unix() {
				continue
			}
			if err := f(o); err != nil {
				return err
			}
		}
		if !more || len(list) == 0 {
			return nil
		}
		page.After = list[len(list)-1].ID
	}
}

// checkFunds refuses a user who has spent the limit of the month. Responses in progress have spent nothing yet.
func (s *Service) checkFunds(ctx context.Context, c berth.Caller) error {
	limit := c.Subject.Limits.CostPerMonth
	if limit == nil || *limit < 0 {
		return nil
	}
	now := s.Clock.Now()
	used, err := s.usage(ctx, c.Project, c.Subject.EndUser, now)
	if err != nil {
		return err
	}
	if used.Cost < *limit {
		return nil
	}
	_, next := store.Month(now)
	return &berth.Error{Code: berth.CodeRateLimited, Wire: "insufficient_quota", Type: "insufficient_quota",
		RetryAfter: next.Sub(now), Message: fmt.Sprintf(
			"End user %s has spent %s %s in this month and the limit is %s. The next month starts at %s.",
			c.Subject.EndUser, used.Cost, s.Currency, limit, next.Format(time.RFC3339))}
}
