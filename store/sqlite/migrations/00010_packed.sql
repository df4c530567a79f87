-- +goose Up

-- A row holds the events of one write. Its type is '' then, and data holds them compressed.
-- Rows from before have one event each, with its type.
ALTER TABLE events ADD COLUMN span INTEGER NOT NULL DEFAULT 1; -- how many
ALTER TABLE events ADD COLUMN size INTEGER NOT NULL DEFAULT 0; -- bytes of their JSON; 0 means those of data
