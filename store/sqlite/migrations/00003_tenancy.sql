-- Who asked, and what that used.

-- +goose Up
ALTER TABLE responses ADD COLUMN key TEXT NOT NULL DEFAULT '';        -- the API key's id
ALTER TABLE responses ADD COLUMN request_id TEXT NOT NULL DEFAULT ''; -- of the HTTP request, for the log
ALTER TABLE keys ADD COLUMN expires_at INTEGER NOT NULL DEFAULT 0;    -- 0 is never
