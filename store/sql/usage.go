package sql

import (
	"context"
	"errors"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Sums of usage in intervals of $1 seconds, of all projects or of one.
const (
	selectUsage = `SELECT CAST(start - start % $1 AS bigint) AS bucket, project, key, name,
			CAST(sum(count) AS bigint), CAST(sum(input_tokens) AS bigint), CAST(sum(cached_tokens) AS bigint),
			CAST(sum(output_tokens) AS bigint), CAST(sum(reasoning_tokens) AS bigint),
			CAST(sum(seconds) AS bigint), CAST(sum(cost) AS bigint)
		FROM usage WHERE kind = $2 AND start >= $3 AND start < $4`
	groupUsage   = ` GROUP BY bucket, project, key, name ORDER BY bucket, project, key, name`
	allUsage     = selectUsage + groupUsage
	projectUsage = selectUsage + ` AND project = $5` + groupUsage
)

func (d accounts) Usage(ctx context.Context, q store.UsageQuery) ([]*store.Usage, error) {
	text, args := allUsage, in{int64(q.Width / time.Second), q.Kind, q.From.Unix(), q.To.Unix()}
	if q.Project != "" {
		text, args = projectUsage, append(args, q.Project)
	}
	rows, err := List(ctx, d.driver, text, args, func(u *store.Usage) []any {
		return []any{&u.Start, &u.Project, &u.Key, &u.Name, &u.Count, &u.InputTokens, &u.CachedTokens, &u.OutputTokens,
			&u.ReasoningTokens, &u.Seconds, (*int64)(&u.Cost)}
	})
	if err != nil {
		return nil, d.driver.Convert(err)
	}
	used := make([]*store.Usage, len(rows))
	for i := range rows {
		used[i] = &rows[i]
		used[i].Kind = q.Kind
	}
	return used, nil
}

func (d accounts) Spent(ctx context.Context, p berth.ProjectID, key berth.KeyID, month time.Time) (ofProject,
	ofKey berth.Amount, err error) {
	err = d.read(ctx, `SELECT CAST(coalesce(sum(cost), 0) AS bigint),
			CAST(coalesce(sum(CASE WHEN key = $1 THEN cost ELSE 0 END), 0) AS bigint)
		FROM spending WHERE project = $2 AND month = $3`,
		in{key, p, month.Unix()}, (*int64)(&ofProject), (*int64)(&ofKey))
	return ofProject, ofKey, err
}

func (d accounts) Spending(ctx context.Context, p berth.ProjectID, month time.Time) ([]*store.Spending, error) {
	text, args := `SELECT project, key, cost FROM spending WHERE month = $1 ORDER BY project, key`, in{month.Unix()}
	if p != "" {
		text = `SELECT project, key, cost FROM spending WHERE month = $1 AND project = $2 ORDER BY key`
		args = append(args, p)
	}
	rows, err := List(ctx, d.driver, text, args,
		func(s *store.Spending) []any { return []any{&s.Project, &s.Key, (*int64)(&s.Cost)} })
	var all []*store.Spending
	for i := range rows {
		all = append(all, &rows[i])
	}
	return all, d.driver.Convert(err)
}

func (d accounts) AddUsage(ctx context.Context, u *store.Usage) error {
	now := *u
	return d.driver.Update(ctx, func(ctx context.Context, tx *Tx) error {
		now.Start = store.UsageMinute(time.Now())
		return addUsage(ctx, tx, &now)
	})
}

// addUsage adds to the usage of minutes and to the spending of months.
func addUsage(ctx context.Context, tx *Tx, used ...*store.Usage) error {
	for _, u := range used {
		if err := tx.Run(ctx, `INSERT INTO usage (project, start, kind, key, name, count, input_tokens, cached_tokens,
				output_tokens, reasoning_tokens, seconds, cost)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
			ON CONFLICT (project, kind, start, key, name) DO UPDATE SET
				count = usage.count + excluded.count,
				input_tokens = usage.input_tokens + excluded.input_tokens,
				cached_tokens = usage.cached_tokens + excluded.cached_tokens,
				output_tokens = usage.output_tokens + excluded.output_tokens,
				reasoning_tokens = usage.reasoning_tokens + excluded.reasoning_tokens,
				seconds = usage.seconds + excluded.seconds,
				cost = usage.cost + excluded.cost`,
			string(u.Project), u.Start, string(u.Kind), string(u.Key), u.Name, u.Count, u.InputTokens, u.CachedTokens,
			u.OutputTokens, u.ReasoningTokens, u.Seconds, int64(u.Cost)); err != nil {
			return err
		}
		if s := u.Spending(); s.Cost != 0 {
			month, _ := store.Month(time.Unix(u.Start, 0))
			if err := tx.Run(ctx, `INSERT INTO spending (project, month, key, cost) VALUES ($1, $2, $3, $4)
				ON CONFLICT (month, project, key) DO UPDATE SET cost = spending.cost + excluded.cost`,
				string(s.Project), month.Unix(), string(s.Key), int64(s.Cost)); err != nil {
				return err
			}
		}
	}
	return nil
}

// countResponse counts a response that ends as body.
func countResponse(ctx context.Context, tx *Tx, p berth.ProjectID, key berth.KeyID, body *berth.Response) error {
	return addUsage(ctx, tx, store.ResponseUsage(p, key, body, time.Now())...)
}

// countUnfinished counts a response that is deleted before its end. It does nothing if
// the response has ended or does not exist.
func (d responses) countUnfinished(ctx context.Context, tx *Tx, p berth.ProjectID, id berth.ResponseID) error {
	var key berth.KeyID
	var box, output []byte
	err := Read(ctx, tx, `SELECT r.key, b.body, b.output FROM responses r JOIN bodies b ON b.response = r.id
		WHERE r.id = $1 AND r.project = $2 AND NOT r.deleted AND NOT r.final`, in{string(id), string(p)}, &key, &box, &output)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	opener := d.keys.Opener()
	body, err := opener.ResponseBody(ctx, box)
	if err != nil {
		return err
	}
	if body.Output, err = opener.Output(ctx, output); err != nil {
		return err
	}
	return countResponse(ctx, tx, p, key, body)
}

// countContainer counts the seconds of a container that ends now. It does nothing if
// the container is not running.
func countContainer(ctx context.Context, tx *Tx, p berth.ProjectID, id berth.ContainerID) error {
	r := store.Running{Project: p}
	err := Read(ctx, tx, `SELECT key, memory_limit, counted_until FROM containers
		WHERE id = $1 AND project = $2 AND status = 'running'`, in{string(id), string(p)}, &r.Key, &r.MemoryLimit, &r.Counted)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return addUsage(ctx, tx, r.Usage(time.Now().Unix())...)
}

func (d containers) CountContainers(ctx context.Context) error {
	return d.driver.Update(ctx, func(ctx context.Context, tx *Tx) error {
		running, err := List(ctx, tx, `SELECT project, key, memory_limit, counted_until FROM containers
			WHERE status = 'running'`, nil,
			func(r *store.Running) []any { return []any{&r.Project, &r.Key, &r.MemoryLimit, &r.Counted} })
		if err != nil {
			return err
		}
		now := time.Now().Unix()
		for _, r := range running {
			if err := addUsage(ctx, tx, r.Usage(now)...); err != nil {
				return err
			}
		}
		return tx.Run(ctx, `UPDATE containers SET counted_until = $1
			WHERE status = 'running' AND counted_until < $1`, now)
	})
}
