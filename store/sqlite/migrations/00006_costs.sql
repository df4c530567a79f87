-- What the tokens cost that projects have used, in billionths of the currency that
-- the configuration names. Of kind 'upstream', name is UPSTREAM/MODEL.

-- +goose Up
ALTER TABLE usage ADD COLUMN cost INTEGER NOT NULL DEFAULT 0;
