package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
)

// CountKeys returns the number of API keys in a database file. It neither migrates nor changes the
// database, so it may run beside a server.
func CountKeys(ctx context.Context, path string) (n int, err error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?mode=ro")
	if err != nil {
		return 0, fmt.Errorf("open: %w", err)
	}
	if err = db.QueryRowContext(ctx, "SELECT count(*) FROM keys").Scan(&n); err != nil {
		err = fmt.Errorf("count keys: %w", explain(err))
	}
	return n, errors.Join(err, db.Close())
}
