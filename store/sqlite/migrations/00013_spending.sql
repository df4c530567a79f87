-- What projects have spent, by the month (UTC) and key: the sums of usage.cost without the kind
-- 'upstream', which splits that of the others. A budget is checked with one row for each key,
-- not with the minutes of a month.

-- +goose Up
CREATE TABLE spending (
    project          TEXT NOT NULL,
    month            INTEGER NOT NULL, -- its start
    key              TEXT NOT NULL,    -- the API key's id
    cost             INTEGER NOT NULL,
    PRIMARY KEY (month, project, key)
) WITHOUT ROWID;

INSERT INTO spending (project, month, key, cost)
SELECT project, unixepoch(start, 'unixepoch', 'start of month'), key, sum(cost)
FROM usage WHERE kind <> 'upstream' AND cost <> 0 GROUP BY 1, 2, 3;

ALTER TABLE keys ADD COLUMN cost_per_month INTEGER; -- the key's limit; NULL means none
