-- +goose Up

-- Who answers for a key, what it may do, and when it was used last, which is saved from time to time.
ALTER TABLE keys ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE keys ADD COLUMN note TEXT NOT NULL DEFAULT '';
ALTER TABLE keys ADD COLUMN role TEXT NOT NULL DEFAULT ''; -- '' is all that a key of its project may do
ALTER TABLE keys ADD COLUMN scope TEXT NOT NULL DEFAULT ''; -- JSON
ALTER TABLE keys ADD COLUMN last_used_at INTEGER NOT NULL DEFAULT 0; -- 0 is never
