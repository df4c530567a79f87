-- name: GetRing :one
SELECT mark, id FROM ring;

-- name: CreateRing :exec
INSERT INTO ring (mark, id) VALUES ($1, $2);

-- name: SetRingID :exec
UPDATE ring SET id = $1;

-- NextRowKeys returns unused numbers of keys.
-- name: NextRowKeys :many
SELECT CAST(nextval('row_key_numbers') AS bigint) AS number FROM generate_series(1, sqlc.arg(count)::bigint);

-- SkipRowKeys makes NextRowKeys return numbers above one.
-- name: SkipRowKeys :exec
SELECT setval('row_key_numbers', sqlc.arg(last)::bigint);

-- name: CreateRowKeys :exec
INSERT INTO row_keys (number, box) SELECT unnest(sqlc.arg(numbers)::bigint[]), unnest(sqlc.arg(boxes)::bytea[]);

-- name: RowKeys :many
SELECT number, box FROM row_keys WHERE number >= sqlc.arg(first) AND number <= sqlc.arg(last);

-- name: DeleteRowKeys :exec
DELETE FROM row_keys WHERE number = ANY (sqlc.arg(numbers)::bigint[]);

-- DeletedRowKeys returns the number of keys deleted so far, by PostgreSQL's statistics.
-- name: DeletedRowKeys :one
SELECT CAST(coalesce(pg_stat_get_tuples_deleted('row_keys'::regclass), 0) AS bigint) AS deleted;

-- name: TryLock :one
SELECT pg_try_advisory_xact_lock(sqlc.arg(lock)::bigint) AS got;
