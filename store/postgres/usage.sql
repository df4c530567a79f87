-- name: AddUsage :exec
INSERT INTO usage (project, start, kind, key, name, count, input_tokens, cached_tokens, output_tokens, reasoning_tokens, seconds, cost)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (project, kind, start, key, name) DO UPDATE SET
    count = usage.count + excluded.count,
    input_tokens = usage.input_tokens + excluded.input_tokens,
    cached_tokens = usage.cached_tokens + excluded.cached_tokens,
    output_tokens = usage.output_tokens + excluded.output_tokens,
    reasoning_tokens = usage.reasoning_tokens + excluded.reasoning_tokens,
    seconds = usage.seconds + excluded.seconds,
    cost = usage.cost + excluded.cost;

-- name: ProjectUsage :many
SELECT CAST(start - start % sqlc.arg(width)::bigint AS bigint) AS bucket, key, name,
    CAST(sum(count) AS bigint) AS count, CAST(sum(input_tokens) AS bigint) AS input_tokens,
    CAST(sum(cached_tokens) AS bigint) AS cached_tokens, CAST(sum(output_tokens) AS bigint) AS output_tokens,
    CAST(sum(reasoning_tokens) AS bigint) AS reasoning_tokens, CAST(sum(seconds) AS bigint) AS seconds,
    CAST(sum(cost) AS bigint) AS cost
FROM usage
WHERE project = sqlc.arg(project) AND kind = sqlc.arg(kind) AND start >= sqlc.arg(first) AND start < sqlc.arg(before)
GROUP BY bucket, key, name ORDER BY bucket, key, name;

-- name: AllUsage :many
SELECT CAST(start - start % sqlc.arg(width)::bigint AS bigint) AS bucket, project, key, name,
    CAST(sum(count) AS bigint) AS count, CAST(sum(input_tokens) AS bigint) AS input_tokens,
    CAST(sum(cached_tokens) AS bigint) AS cached_tokens, CAST(sum(output_tokens) AS bigint) AS output_tokens,
    CAST(sum(reasoning_tokens) AS bigint) AS reasoning_tokens, CAST(sum(seconds) AS bigint) AS seconds,
    CAST(sum(cost) AS bigint) AS cost
FROM usage
WHERE kind = sqlc.arg(kind) AND start >= sqlc.arg(first) AND start < sqlc.arg(before)
GROUP BY bucket, project, key, name ORDER BY bucket, project, key, name;

-- Unfinished returns a response that has not ended, when it is deleted.
-- name: Unfinished :one
SELECT r.key, b.body FROM responses r JOIN bodies b ON b.response = r.id
WHERE r.id = $1 AND r.project = $2 AND NOT r.deleted AND NOT r.final;

-- name: CountedContainer :one
SELECT key, memory_limit, counted_until FROM containers WHERE id = $1 AND project = $2 AND status = 'running';

-- name: CountedContainers :many
SELECT project, key, memory_limit, counted_until FROM containers WHERE status = 'running';

-- name: SetCounted :exec
UPDATE containers SET counted_until = sqlc.arg(now) WHERE status = 'running' AND counted_until < sqlc.arg(now);

-- name: FileBytes :one
SELECT CAST(coalesce(sum(bytes), 0) AS bigint) FROM files WHERE project = $1;

-- name: AddSpending :exec
INSERT INTO spending (project, month, key, cost) VALUES ($1, $2, $3, $4)
ON CONFLICT (month, project, key) DO UPDATE SET cost = spending.cost + excluded.cost;

-- name: Spent :one
SELECT CAST(coalesce(sum(cost), 0) AS bigint) AS of_project,
    CAST(coalesce(sum(CASE WHEN key = sqlc.arg(key) THEN cost ELSE 0 END), 0) AS bigint) AS of_key
FROM spending WHERE project = sqlc.arg(project) AND month = sqlc.arg(month);

-- name: ProjectSpending :many
SELECT key, cost FROM spending WHERE project = sqlc.arg(project) AND month = sqlc.arg(month) ORDER BY key;

-- name: AllSpending :many
SELECT project, key, cost FROM spending WHERE month = sqlc.arg(month) ORDER BY project, key;
