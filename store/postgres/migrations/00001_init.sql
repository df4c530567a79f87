-- +goose Up

-- Ids are compared by their bytes, as on SQLite. Boxes are sealed, so that compression has no effect.

-- One row: what the ring and the server's key must be.
CREATE TABLE ring (
    mark             bytea NOT NULL
);

-- Keys that are to be erased, of rows that are deleted.
CREATE TABLE doomed (
    seal             bigint PRIMARY KEY
);

-- The last transaction of each writer, so that a writer whose connection was lost during a commit
-- learns whether it was saved.
CREATE TABLE writers (
    id               text COLLATE "C" PRIMARY KEY,
    batch            bigint NOT NULL,
    at               timestamptz NOT NULL
) WITH (fillfactor = 10);

-- A response's place in its chain, and the lease on its run. A deleted response stays, without
-- content, while others continue it.
CREATE TABLE responses (
    id               text COLLATE "C" PRIMARY KEY,
    project          text COLLATE "C" NOT NULL,
    previous         text COLLATE "C" REFERENCES responses (id),
    container        text COLLATE "C" NOT NULL,
    final            boolean NOT NULL,
    stored           boolean NOT NULL, -- as the request's "store"
    deleted          boolean NOT NULL DEFAULT false,
    lease_owner      text COLLATE "C" NOT NULL,
    lease_until      bigint NOT NULL,  -- milliseconds since 1970 by the database's clock
    key              text COLLATE "C" NOT NULL, -- the API key's id
    request_id       text COLLATE "C" NOT NULL, -- of the HTTP request, for the log
    seal             bigint NOT NULL   -- also of its request, body and events
);

CREATE INDEX responses_by_previous ON responses (previous) WHERE previous IS NOT NULL;
CREATE INDEX responses_open ON responses (lease_until) WHERE NOT deleted AND (NOT final OR NOT stored);
CREATE INDEX responses_by_project ON responses (project) WHERE NOT deleted;

-- Never changed.
CREATE TABLE requests (
    response         text COLLATE "C" PRIMARY KEY REFERENCES responses (id),
    request          bytea NOT NULL, -- without its input
    input            bytea NOT NULL
);

-- The fold of a response's events so far.
CREATE TABLE bodies (
    response         text COLLATE "C" PRIMARY KEY REFERENCES responses (id),
    body             bytea NOT NULL, -- without its output
    output           bytea NOT NULL
);

-- A row holds the events of one write, compressed.
CREATE TABLE events (
    response         text COLLATE "C" NOT NULL REFERENCES responses (id),
    sequence_number  bigint NOT NULL, -- the first
    data             bytea NOT NULL,
    span             bigint NOT NULL, -- how many
    size             bigint NOT NULL, -- bytes of their JSON
    PRIMARY KEY (response, sequence_number)
);

-- Clients name an item by its id alone, in an "item_reference".
CREATE TABLE items (
    project          text COLLATE "C" NOT NULL,
    id               text COLLATE "C" NOT NULL,
    response         text COLLATE "C" NOT NULL REFERENCES responses (id), -- the first that has it, in input or output
    PRIMARY KEY (project, id)
);

CREATE INDEX items_by_response ON items (response);

CREATE TABLE files (
    id               text COLLATE "C" PRIMARY KEY,
    project          text COLLATE "C" NOT NULL,
    created_at       bigint NOT NULL, -- seconds since 1970, as everywhere below
    expires_at       bigint,
    purpose          text COLLATE "C" NOT NULL,
    bytes            bigint NOT NULL,
    body             bytea NOT NULL,
    seal             bigint NOT NULL
);

CREATE INDEX files_by_time ON files (project, created_at, id);
CREATE INDEX files_by_end ON files (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX files_by_size ON files (project, bytes);

CREATE TABLE containers (
    id               text COLLATE "C" PRIMARY KEY,
    project          text COLLATE "C" NOT NULL,
    created_at       bigint NOT NULL,
    name             text COLLATE "C" NOT NULL, -- a digest of it
    status           text COLLATE "C" NOT NULL,
    body             bytea NOT NULL,
    key              text COLLATE "C" NOT NULL,
    memory_limit     text COLLATE "C" NOT NULL,
    counted_until    bigint NOT NULL, -- its seconds, while it runs
    seal             bigint NOT NULL  -- also of its files
);

CREATE INDEX containers_by_time ON containers (project, created_at, id);
CREATE INDEX containers_running ON containers (id) WHERE status = 'running';

CREATE TABLE container_files (
    container        text COLLATE "C" NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    path             text COLLATE "C" NOT NULL, -- a digest of it
    id               text COLLATE "C" NOT NULL,
    created_at       bigint NOT NULL,
    source           text COLLATE "C" NOT NULL,
    bytes            bigint NOT NULL,
    box              bytea NOT NULL, -- the path
    PRIMARY KEY (container, path)
);

CREATE UNIQUE INDEX container_files_by_id ON container_files (container, id);

CREATE TABLE keys (
    id               text COLLATE "C" PRIMARY KEY,
    project          text COLLATE "C" NOT NULL,
    name             text COLLATE "C" NOT NULL,
    hash             bytea NOT NULL UNIQUE,
    tail             text COLLATE "C" NOT NULL,
    created_at       bigint NOT NULL,
    expires_at       bigint NOT NULL -- 0 is never
);

-- Documents that the store need not understand.
CREATE TABLE objects (
    number           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order of creation
    project          text COLLATE "C" NOT NULL,
    kind             text COLLATE "C" NOT NULL,
    parent           text COLLATE "C" NOT NULL, -- the id of the object that it belongs to, or ''
    id               text COLLATE "C" NOT NULL,
    created_at       bigint NOT NULL,
    expires_at       bigint, -- NULL is never
    body             bytea NOT NULL,
    seal             bigint NOT NULL
);

CREATE UNIQUE INDEX objects_by_key ON objects (project, id, kind, parent);
CREATE INDEX objects_in_order ON objects (project, parent, kind, number);
CREATE INDEX objects_by_end ON objects (kind, expires_at) WHERE expires_at IS NOT NULL;

-- What projects have used, by the minute.
CREATE TABLE usage (
    project          text COLLATE "C" NOT NULL,
    start            bigint NOT NULL,           -- of the minute
    kind             text COLLATE "C" NOT NULL,
    key              text COLLATE "C" NOT NULL, -- the API key's id
    name             text COLLATE "C" NOT NULL, -- the model, the container's memory limit, or UPSTREAM/MODEL
    count            bigint NOT NULL,
    input_tokens     bigint NOT NULL,
    cached_tokens    bigint NOT NULL, -- of the input
    output_tokens    bigint NOT NULL,
    reasoning_tokens bigint NOT NULL, -- of the output
    seconds          bigint NOT NULL,
    cost             bigint NOT NULL, -- in billionths of the currency that the configuration names
    PRIMARY KEY (project, kind, start, key, name)
);

CREATE INDEX usage_by_time ON usage (kind, start);

ALTER TABLE requests ALTER COLUMN request SET STORAGE EXTERNAL, ALTER COLUMN input SET STORAGE EXTERNAL;
ALTER TABLE bodies ALTER COLUMN body SET STORAGE EXTERNAL, ALTER COLUMN output SET STORAGE EXTERNAL;
ALTER TABLE events ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE objects ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE containers ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE files ALTER COLUMN body SET STORAGE EXTERNAL;
