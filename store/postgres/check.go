package postgres

import (
	"context"
	"errors"
	"fmt"

	base "github.com/berth-run/berth/store/sql"
)

// CheckWrite returns an error unless a write succeeds now. It leaves no data.
func (d *DB) CheckWrite(ctx context.Context) error {
	return d.core.Update(ctx, func(context.Context, *base.Tx) error { return nil }) // its batch is recorded
}

// Info describes a database.
type Info struct {
	Version string // of PostgreSQL
	Holder  string // the server that has claimed it; "" if none has
}

// Inspect connects to a database and checks that Berth can use it. It changes nothing.
func Inspect(ctx context.Context, url string) (info Info, err error) {
	config, err := parse(url, "")
	if err != nil {
		return info, prefixed(err)
	}
	c, err := connect(ctx, config.ConnConfig)
	if err != nil {
		return info, wrap(err)
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	var create, standby bool
	err = c.QueryRow(ctx,
		"SELECT current_setting('server_version'), has_schema_privilege(current_schema(), 'CREATE'), pg_is_in_recovery()").Scan(&info.Version,
		&create, &standby)
	switch {
	case err != nil:
		return info, fmt.Errorf("postgres: query version: %w", err)
	case standby:
		return info, errors.New("postgres: the server is a standby, which accepts no writes")
	case !create:
		return info, errors.New("postgres: the user may not create tables; make it the owner of the database")
	}
	info.Holder = holder(ctx, c)
	return info, nil
}
