-- What projects have used, by the minute.

-- +goose Up
CREATE TABLE usage (
    project          TEXT NOT NULL,
    start            INTEGER NOT NULL, -- of the minute
    kind             TEXT NOT NULL,    -- 'response' or 'container'
    key              TEXT NOT NULL,    -- the API key's id
    name             TEXT NOT NULL,    -- the model, or the container's memory limit
    count            INTEGER NOT NULL,
    input_tokens     INTEGER NOT NULL,
    cached_tokens    INTEGER NOT NULL, -- of the input
    output_tokens    INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL, -- of the output
    seconds          INTEGER NOT NULL,
    PRIMARY KEY (project, kind, start, key, name)
) WITHOUT ROWID;

CREATE INDEX usage_by_time ON usage (kind, start);

ALTER TABLE containers ADD COLUMN key TEXT NOT NULL DEFAULT '';
ALTER TABLE containers ADD COLUMN memory_limit TEXT NOT NULL DEFAULT '';
ALTER TABLE containers ADD COLUMN counted_until INTEGER NOT NULL DEFAULT 0; -- its seconds, while it runs
UPDATE containers SET memory_limit = coalesce(json_extract(CAST(body AS TEXT), '$.memory_limit'), ''), counted_until = unixepoch();

ALTER TABLE files ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE files SET bytes = coalesce(json_extract(CAST(body AS TEXT), '$.bytes'), 0);
CREATE INDEX files_by_size ON files (project, bytes);
