-- +goose Up

-- The servers that share the database, and the locks that they hold.
CREATE TABLE members (
    id               TEXT PRIMARY KEY,
    address          TEXT NOT NULL,
    version          TEXT NOT NULL,
    lease_until      INTEGER NOT NULL -- milliseconds since 1970
) WITHOUT ROWID;

CREATE TABLE locks (
    name             TEXT PRIMARY KEY,
    owner            TEXT NOT NULL,
    lease_until      INTEGER NOT NULL
) WITHOUT ROWID;
