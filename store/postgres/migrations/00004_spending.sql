-- What projects have spent, by the month (UTC) and key: the sums of usage.cost without the kind
-- 'upstream', which splits that of the others. A budget is checked with one row for each key,
-- not with the minutes of a month.

-- +goose Up
CREATE TABLE spending (
    project          text COLLATE "C" NOT NULL,
    month            bigint NOT NULL, -- its start
    key              text COLLATE "C" NOT NULL, -- the API key's id
    cost             bigint NOT NULL,
    PRIMARY KEY (month, project, key)
) WITH (fillfactor = 50);

INSERT INTO spending (project, month, key, cost)
SELECT project, CAST(extract(epoch FROM date_trunc('month', to_timestamp(start) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC') AS bigint), key, sum(cost)
FROM usage WHERE kind <> 'upstream' AND cost <> 0 GROUP BY 1, 2, 3;

ALTER TABLE keys ADD COLUMN cost_per_month bigint; -- the key's limit; NULL means none
