-- Where an item is: clients name it by its id alone, in an "item_reference".

-- +goose Up
CREATE TABLE items (
    project          TEXT NOT NULL,
    id               TEXT NOT NULL,
    response         TEXT NOT NULL REFERENCES responses (id), -- the first that has it, in input or output
    PRIMARY KEY (project, id)
) WITHOUT ROWID;

CREATE INDEX items_by_response ON items (response);

INSERT OR IGNORE INTO items
SELECT r.project, json_extract(item.value, '$.id'), r.id
FROM responses r JOIN bodies b ON b.response = r.id JOIN json_each(CAST(b.output AS TEXT)) item
WHERE r.stored = 1 AND r.final = 1 AND r.deleted = 0 AND json_extract(item.value, '$.id') <> '';

INSERT OR IGNORE INTO items
SELECT r.project, json_extract(item.value, '$.id'), r.id
FROM responses r JOIN requests q ON q.response = r.id JOIN json_each(CAST(q.input AS TEXT)) item
WHERE r.stored = 1 AND r.deleted = 0 AND json_extract(item.value, '$.id') <> '';
