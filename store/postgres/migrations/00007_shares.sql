-- What the servers of a cluster have of the limits of projects.

-- +goose Up
CREATE TABLE shares (
    project          text COLLATE "C" NOT NULL,
    kind             text COLLATE "C" NOT NULL,
    server           text COLLATE "C" NOT NULL,
    held             bigint NOT NULL,
    PRIMARY KEY (project, kind, server)
) WITH (fillfactor = 20);

-- Token buckets: each refills at its size per minute.
CREATE TABLE rates (
    project          text COLLATE "C" NOT NULL,
    kind             text COLLATE "C" NOT NULL,
    size             bigint NOT NULL,
    level            double precision NOT NULL, -- at the time at
    at               bigint NOT NULL, -- milliseconds since 1970, by the database's clock
    PRIMARY KEY (project, kind)
) WITH (fillfactor = 20);
