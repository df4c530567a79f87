-- +goose Up

-- A table without rowids stores at most 1 KB of a row in its page, and the rest in pages that
-- no other row shares. Half of the space of events was empty therefore. A table with rowids
-- stores up to 4 KB of a row in its page.
CREATE TABLE events_by_row (
    response         TEXT NOT NULL REFERENCES responses (id),
    sequence_number  INTEGER NOT NULL,
    type             TEXT NOT NULL,
    data             BLOB NOT NULL,
    span             INTEGER NOT NULL DEFAULT 1, -- how many
    size             INTEGER NOT NULL DEFAULT 0, -- bytes of their JSON; 0 means those of data
    PRIMARY KEY (response, sequence_number)
);

INSERT INTO events_by_row (response, sequence_number, type, data, span, size)
SELECT response, sequence_number, type, data, span, size FROM events;

DROP TABLE events;
ALTER TABLE events_by_row RENAME TO events;
