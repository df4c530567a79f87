-- +goose Up

-- A response and the lease on its run. JSON columns hold exactly what the wire
-- shows. A deleted response stays as a row without content, so that those that
-- continue it keep their place in the chain.
CREATE TABLE responses (
    id               TEXT PRIMARY KEY,
    project          TEXT NOT NULL,
    previous         TEXT,
    container        TEXT NOT NULL DEFAULT '',
    final            INTEGER NOT NULL DEFAULT 0,
    stored           INTEGER NOT NULL DEFAULT 1,
    deleted          INTEGER NOT NULL DEFAULT 0,
    body             BLOB NOT NULL, -- without its output
    output           BLOB NOT NULL,
    request          BLOB NOT NULL,
    input            BLOB NOT NULL,
    next_event       INTEGER NOT NULL,
    lease_owner      TEXT NOT NULL DEFAULT '',
    lease_until      INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX responses_open ON responses (lease_until) WHERE deleted = 0 AND (final = 0 OR stored = 0);

CREATE TABLE events (
    response         TEXT NOT NULL,
    sequence_number  INTEGER NOT NULL,
    type             TEXT NOT NULL,
    data             BLOB NOT NULL,
    PRIMARY KEY (response, sequence_number)
) WITHOUT ROWID;

CREATE TABLE files (
    id               TEXT PRIMARY KEY,
    project          TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    purpose          TEXT NOT NULL,
    body             BLOB NOT NULL
);

CREATE INDEX files_by_time ON files (project, created_at, id);

CREATE TABLE containers (
    id               TEXT PRIMARY KEY,
    project          TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    name             TEXT NOT NULL,
    status           TEXT NOT NULL,
    body             BLOB NOT NULL
);

CREATE INDEX containers_by_time ON containers (project, created_at, id);
CREATE INDEX containers_running ON containers (status) WHERE status = 'running';

CREATE TABLE container_files (
    container        TEXT NOT NULL,
    path             TEXT NOT NULL,
    id               TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    source           TEXT NOT NULL,
    bytes            INTEGER NOT NULL,
    PRIMARY KEY (container, path)
) WITHOUT ROWID;

CREATE UNIQUE INDEX container_files_by_id ON container_files (container, id);

CREATE TABLE keys (
    id               TEXT PRIMARY KEY,
    project          TEXT NOT NULL,
    name             TEXT NOT NULL,
    hash             BLOB NOT NULL UNIQUE,
    tail             TEXT NOT NULL,
    created_at       INTEGER NOT NULL
) WITHOUT ROWID;
