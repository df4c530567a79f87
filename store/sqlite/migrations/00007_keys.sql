-- What was written is sealed under keys that are kept elsewhere; see seal.go. What
-- was written before has key 0 and is in the clear.

-- +goose Up

-- One row: what the ring and the server's key must be.
CREATE TABLE ring (
    mark             BLOB NOT NULL
);

-- Keys that are to be erased, of rows that are deleted.
CREATE TABLE doomed (
    seal             INTEGER PRIMARY KEY
);

DROP TABLE erasure;

ALTER TABLE responses ADD COLUMN seal INTEGER NOT NULL DEFAULT 0; -- also of its request, body and events
ALTER TABLE files ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;
ALTER TABLE containers ADD COLUMN seal INTEGER NOT NULL DEFAULT 0; -- also of its files
ALTER TABLE objects ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;

-- The path of a file, which the column of that name only stands for from now on.
ALTER TABLE container_files ADD COLUMN box BLOB NOT NULL DEFAULT x'';
