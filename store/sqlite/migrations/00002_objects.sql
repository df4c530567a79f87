-- Documents that the store need not understand: conversations and their items,
-- assistants, threads and so on.

-- +goose Up
CREATE TABLE objects (
    number           INTEGER PRIMARY KEY, -- in the order of creation
    project          TEXT NOT NULL,
    kind             TEXT NOT NULL,
    parent           TEXT NOT NULL, -- the id of the object that it belongs to, or ''
    id               TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    expires_at       INTEGER, -- seconds since 1970; NULL is never
    body             BLOB NOT NULL
);

CREATE UNIQUE INDEX objects_by_key ON objects (project, id, kind, parent);
CREATE INDEX objects_in_order ON objects (project, parent, kind, number);
CREATE INDEX objects_by_end ON objects (kind, expires_at) WHERE expires_at IS NOT NULL;
