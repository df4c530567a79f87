-- name: LastBatch :one
SELECT batch FROM writers WHERE id = sqlc.arg(id);

-- ForgetWriters removes the rows of writers that ended.
-- name: ForgetWriters :exec
DELETE FROM writers WHERE at < now() - interval '7 days';
