-- +goose Up

-- The last checkpoint of each audit record of the servers that share the database.
CREATE TABLE checkpoints (
    origin           text COLLATE "C" PRIMARY KEY, -- the name of the record's key
    server           text NOT NULL,
    public_key       text NOT NULL,
    size             bigint NOT NULL, -- entries that the checkpoint covers
    signed           text NOT NULL
) WITH (fillfactor = 10);
