-- +goose Up

-- The servers that share the database, and the locks that they hold.
CREATE TABLE members (
    id               text COLLATE "C" PRIMARY KEY,
    address          text NOT NULL,
    version          text NOT NULL,
    lease_until      bigint NOT NULL -- milliseconds since 1970, by the database's clock
) WITH (fillfactor = 10);

CREATE TABLE locks (
    name             text COLLATE "C" PRIMARY KEY,
    owner            text NOT NULL,
    lease_until      bigint NOT NULL
) WITH (fillfactor = 10);
