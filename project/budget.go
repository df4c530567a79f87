package project

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A Spend is what a project or one of its keys has spent in the present month.
type Spend struct {
	Project berth.ProjectID
	Key     berth.KeyID // empty for the project as a whole
	Used    berth.Amount
	Limit   *berth.Amount // nil means no limit
}

// funds returns an error if the project or the key of a caller has spent what it may spend in
// the present month. Responses in progress have spent nothing yet, so those that start
// together may spend more than the rest.
func (q *Quota) funds(ctx context.Context, p *bounded, c berth.Caller) error {
	q.mu.Lock()
	ofProject := p.limits.CostPerMonth
	q.mu.Unlock()
	var ofKey *berth.Amount
	if c.Key != "" && q.opts.Keys != nil {
		limits, err := q.opts.Keys.KeyLimits(ctx, c.Key)
		if err != nil {
			return fmt.Errorf("read limits of %s: %w", c.Key, err)
		}
		ofKey = limits.CostPerMonth
	}
	if !limitsCost(ofProject) && !limitsCost(ofKey) {
		return nil
	}
	month, next := store.Month(time.Now())
	spent, spentByKey, err := q.opts.Usages.Spent(ctx, c.Project, c.Key, month)
	if err != nil {
		return fmt.Errorf("sum costs of %s: %w", c.Project, err)
	}
	if limitsCost(ofProject) && spent >= *ofProject {
		return q.unfunded("Project "+string(c.Project), spent, *ofProject, next)
	}
	if limitsCost(ofKey) && spentByKey >= *ofKey {
		return q.unfunded("API key "+string(c.Key), spentByKey, *ofKey, next)
	}
	return nil
}

// unfunded returns the error for a spent budget.
func (q *Quota) unfunded(who string, spent, limit berth.Amount, next time.Time) error {
	return insufficient(time.Until(next),
		"%s has spent %s %s in this month and its limit is %s. The next month starts at %s.",
		who, spent, q.opts.Currency, limit, next.Format(time.RFC3339))
}

// limitsCost reports whether a limit is set.
func limitsCost(limit *berth.Amount) bool { return limit != nil && *limit >= 0 }

// Spending returns what a project and its keys have spent in the present month, which ends at
// next, or what all projects have if id is empty. A project is followed by its keys. Keys that
// neither have a limit nor have spent anything are left out, and so are archived
// projects that have spent nothing.
func (q *Quota) Spending(ctx context.Context, id berth.ProjectID) (all []Spend, month, next time.Time, err error) {
	month, next = store.Month(time.Now())
	fail := func(err error) ([]Spend, time.Time, time.Time, error) { return nil, month, next, err }
	spent, err := q.opts.Usages.Spending(ctx, id, month)
	if err != nil {
		return fail(fmt.Errorf("sum costs: %w", err))
	}
	keys, err := q.opts.Keys.ListKeys(ctx)
	if err != nil {
		return fail(fmt.Errorf("list keys: %w", err))
	}
	ids := []berth.ProjectID{id}
	if id == "" {
		if ids, err = q.spenders(ctx, spent); err != nil {
			return fail(err)
		}
	}
	for _, id := range ids {
		p, err := q.project(ctx, id)
		if err != nil {
			return fail(err)
		}
		whole := Spend{Project: id}
		q.mu.Lock()
		if limitsCost(p.limits.CostPerMonth) {
			whole.Limit = p.limits.CostPerMonth
		}
		archived := p.archived
		q.mu.Unlock()
		used := map[berth.KeyID]berth.Amount{}
		for _, s := range spent {
			if s.Project == id {
				whole.Used += s.Cost
				used[s.Key] += s.Cost
			}
		}
		if archived && whole.Used == 0 {
			continue
		}
		all = append(all, whole)
		for _, k := range keys {
			if limited := limitsCost(k.Limits.CostPerMonth); k.Project == id && (limited || used[k.ID] != 0) {
				one := Spend{Project: id, Key: k.ID, Used: used[k.ID]}
				if limited {
					one.Limit = k.Limits.CostPerMonth
				}
				all = append(all, one)
			}
			delete(used, k.ID)
		}
		delete(used, "")
		var deleted []berth.KeyID // since they spent
		for k := range used {
			deleted = append(deleted, k)
		}
		slices.Sort(deleted)
		for _, k := range deleted {
			all = append(all, Spend{Project: id, Key: k, Used: used[k]})
		}
	}
	return all, month, next, nil
}

// spenders returns all projects, and those that have spent but left no other trace.
func (q *Quota) spenders(ctx context.Context, spent []*store.Spending) (ids []berth.ProjectID, err error) {
	known, err := New(Options{Objects: q.opts.Objects, Keys: q.opts.Keys}).ListAll(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range known {
		ids = append(ids, p.ID)
	}
	for _, s := range spent {
		if !slices.Contains(ids, s.Project) {
			ids = append(ids, s.Project)
		}
	}
	return ids, nil
}
