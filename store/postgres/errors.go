package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/berth-run/berth/store"
)

// Codes of PostgreSQL's errors.
const (
	codeUnique       = "23505"
	codeForeignKey   = "23503"
	codeNotText      = "22021" // a text has a zero byte or is not UTF-8
	codeDiskFull     = "53100"
	codeIO           = "58030"
	codeReadOnly     = "25006" // the server is a standby
	codeLockTimeout  = "55P03"
	codeTransaction  = "25P03" // the session was idle in a transaction for too long
	classConnection  = "08"
	classResources   = "53" // too many connections, out of memory
	classIntervenes  = "57" // the server is stopped or starts
	codeStatementEnd = "57014"
)

// wrap converts an error of PostgreSQL to one of the store.
func wrap(err error) error {
	switch {
	case err == nil, errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrStorage):
		return err
	case errors.Is(err, pgx.ErrNoRows):
		return store.ErrNotFound
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case codeUnique:
			return fmt.Errorf("%w: %w", store.ErrExists, err)
		case codeForeignKey: // the parent of the row
			return fmt.Errorf("%w: %w", store.ErrNotFound, err)
		case codeNotText: // no row has such an id
			return fmt.Errorf("%w: %w", store.ErrNotFound, err)
		case codeDiskFull, codeIO:
			return fmt.Errorf("postgres: %w: %w", store.ErrStorage, err)
		}
	}
	if unavailable(err) {
		return fmt.Errorf("postgres: %w: %w", store.ErrUnavailable, err)
	}
	return err
}

// prefixed returns an error that begins with the name of the package, once.
func prefixed(err error) error {
	if strings.HasPrefix(err.Error(), "postgres: ") {
		return err
	}
	return fmt.Errorf("postgres: %w", err)
}

// unavailable reports whether an error means that the database cannot be used now.
func unavailable(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case codeReadOnly, codeLockTimeout, codeTransaction:
			return true
		case codeStatementEnd, codeDiskFull:
			return false
		}
		return strings.HasPrefix(e.Code, classConnection) || strings.HasPrefix(e.Code, classResources) ||
			strings.HasPrefix(e.Code, classIntervenes)
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "conn closed")
}
