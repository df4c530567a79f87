package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	base "github.com/berth-run/berth/store/sql"
)

// A runner is a *pgx.Conn or a *pgxpool.Pool.
type runner interface {
	Exec(ctx context.Context, text string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, text string, args ...any) (pgx.Rows, error)
}

// A conn implements base.Conn.
type conn struct{ runner runner }

func (c conn) Exec(ctx context.Context, text string, args ...any) (changed int64, err error) {
	tag, err := c.runner.Exec(ctx, translate(text), args...)
	return tag.RowsAffected(), err
}

func (c conn) Query(ctx context.Context, text string, args ...any) (base.Rows, error) {
	rows, err := c.runner.Query(ctx, translate(text), args...)
	if err != nil {
		return nil, err
	}
	return result{rows}, nil
}

// A result implements base.Rows.
type result struct{ pgx.Rows }

func (r result) Close() error {
	r.Rows.Close()
	return nil
}

// translate returns a statement of store/sql as PostgreSQL reads it.
func translate(text string) string {
	return strings.ReplaceAll(text, "{now}", "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")
}
