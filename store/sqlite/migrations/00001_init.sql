-- +goose Up

-- SQLite writes a row as a whole: what changes often is kept apart from what may
-- be large. JSON columns hold exactly what the wire shows.

-- A response's place in its chain, and the lease on its run. A deleted response
-- stays, without content, as long as others continue it.
CREATE TABLE responses (
    id               TEXT PRIMARY KEY,
    project          TEXT NOT NULL,
    previous         TEXT REFERENCES responses (id),
    container        TEXT NOT NULL,
    final            INTEGER NOT NULL,
    stored           INTEGER NOT NULL, -- as the request's "store"
    deleted          INTEGER NOT NULL DEFAULT 0,
    lease_owner      TEXT NOT NULL,
    lease_until      INTEGER NOT NULL  -- milliseconds since 1970
) WITHOUT ROWID;

CREATE INDEX responses_by_previous ON responses (previous) WHERE previous IS NOT NULL;
CREATE INDEX responses_open ON responses (lease_until) WHERE deleted = 0 AND (final = 0 OR stored = 0);

-- What was asked; never changed.
CREATE TABLE requests (
    response         TEXT PRIMARY KEY REFERENCES responses (id),
    request          BLOB NOT NULL, -- without its input
    input            BLOB NOT NULL
);

-- What has come of it so far, the fold of its events.
CREATE TABLE bodies (
    response         TEXT PRIMARY KEY REFERENCES responses (id),
    body             BLOB NOT NULL, -- without its output
    output           BLOB NOT NULL
);

CREATE TABLE events (
    response         TEXT NOT NULL REFERENCES responses (id),
    sequence_number  INTEGER NOT NULL,
    type             TEXT NOT NULL,
    data             BLOB NOT NULL,
    PRIMARY KEY (response, sequence_number)
) WITHOUT ROWID;

CREATE TABLE files (
    id               TEXT PRIMARY KEY,
    project          TEXT NOT NULL,
    created_at       INTEGER NOT NULL, -- seconds since 1970, as everywhere below
    expires_at       INTEGER,
    purpose          TEXT NOT NULL,
    body             BLOB NOT NULL
);

CREATE INDEX files_by_time ON files (project, created_at, id);
CREATE INDEX files_by_end ON files (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE containers (
    id               TEXT PRIMARY KEY,
    project          TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    name             TEXT NOT NULL,
    status           TEXT NOT NULL,
    body             BLOB NOT NULL
);

CREATE INDEX containers_by_time ON containers (project, created_at, id);
CREATE INDEX containers_running ON containers (id) WHERE status = 'running';

CREATE TABLE container_files (
    container        TEXT NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
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

-- One row: deletions so far, and how many of them have left no trace in the file.
CREATE TABLE erasure (
    deleted          INTEGER NOT NULL,
    erased           INTEGER NOT NULL
);

INSERT INTO erasure VALUES (0, 0);
