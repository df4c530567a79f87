-- The keys of rows, each encrypted with the servers' key, so that all servers have them.

-- +goose Up
ALTER TABLE ring ADD COLUMN id bytea; -- NULL while the keys are in a file of one server

CREATE TABLE row_keys (
    number           bigint PRIMARY KEY,
    box              bytea NOT NULL
);

CREATE SEQUENCE row_key_numbers;
