-- +goose Up

-- Who answers for a key, what it may do, and when it was used last, which is saved from time to time.
ALTER TABLE keys ADD COLUMN owner text NOT NULL DEFAULT '';
ALTER TABLE keys ADD COLUMN note text NOT NULL DEFAULT '';
ALTER TABLE keys ADD COLUMN role text NOT NULL DEFAULT ''; -- '' is all that a key of its project may do
ALTER TABLE keys ADD COLUMN scope text NOT NULL DEFAULT ''; -- JSON
ALTER TABLE keys ADD COLUMN last_used_at bigint NOT NULL DEFAULT 0; -- 0 is never
