-- name: AddUsage :exec
INSERT INTO usage (project, start, kind, key, name, count, input_tokens, cached_tokens, output_tokens, reasoning_tokens, seconds, cost)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (project, kind, start, key, name) DO UPDATE SET
    count = count + excluded.count,
    input_tokens = input_tokens + excluded.input_tokens,
    cached_tokens = cached_tokens + excluded.cached_tokens,
    output_tokens = output_tokens + excluded.output_tokens,
    reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens,
    seconds = seconds + excluded.seconds,
    cost = cost + excluded.cost;

-- name: ProjectUsage :many
SELECT CAST(start - start % CAST(sqlc.arg(width) AS INTEGER) AS INTEGER) AS bucket, key, name,
    CAST(sum(count) AS INTEGER) AS count, CAST(sum(input_tokens) AS INTEGER) AS input_tokens,
    CAST(sum(cached_tokens) AS INTEGER) AS cached_tokens, CAST(sum(output_tokens) AS INTEGER) AS output_tokens,
    CAST(sum(reasoning_tokens) AS INTEGER) AS reasoning_tokens, CAST(sum(seconds) AS INTEGER) AS seconds,
    CAST(sum(cost) AS INTEGER) AS cost
FROM usage
WHERE project = sqlc.arg(project) AND kind = sqlc.arg(kind) AND start >= sqlc.arg(first) AND start < sqlc.arg(before)
GROUP BY bucket, key, name ORDER BY bucket, key, name;

-- name: AllUsage :many
SELECT CAST(start - start % CAST(sqlc.arg(width) AS INTEGER) AS INTEGER) AS bucket, project, key, name,
    CAST(sum(count) AS INTEGER) AS count, CAST(sum(input_tokens) AS INTEGER) AS input_tokens,
    CAST(sum(cached_tokens) AS INTEGER) AS cached_tokens, CAST(sum(output_tokens) AS INTEGER) AS output_tokens,
    CAST(sum(reasoning_tokens) AS INTEGER) AS reasoning_tokens, CAST(sum(seconds) AS INTEGER) AS seconds,
    CAST(sum(cost) AS INTEGER) AS cost
FROM usage
WHERE kind = sqlc.arg(kind) AND start >= sqlc.arg(first) AND start < sqlc.arg(before)
GROUP BY bucket, project, key, name ORDER BY bucket, project, key, name;

-- Unfinished returns a response that has not ended, when it is deleted.
-- name: Unfinished :one
SELECT r.key, b.body FROM responses r JOIN bodies b ON b.response = r.id
WHERE r.id = ? AND r.project = ? AND r.deleted = 0 AND r.final = 0;

-- name: CountedContainer :one
SELECT key, memory_limit, counted_until FROM containers WHERE id = ? AND project = ? AND status = 'running';

-- name: CountedContainers :many
SELECT project, key, memory_limit, counted_until FROM containers WHERE status = 'running';

-- name: SetCounted :exec
UPDATE containers SET counted_until = sqlc.arg(now) WHERE status = 'running' AND counted_until < sqlc.arg(now);

-- name: FileBytes :one
SELECT CAST(coalesce(sum(bytes), 0) AS INTEGER) FROM files WHERE project = ?;

-- name: AddSpending :exec
INSERT INTO spending (project, month, key, cost) VALUES (?, ?, ?, ?)
ON CONFLICT (month, project, key) DO UPDATE SET cost = cost + excluded.cost;

-- name: Spent :one
SELECT CAST(coalesce(sum(cost), 0) AS INTEGER) AS of_project,
    CAST(coalesce(sum(CASE WHEN key = sqlc.arg(key) THEN cost ELSE 0 END), 0) AS INTEGER) AS of_key
FROM spending WHERE project = sqlc.arg(project) AND month = sqlc.arg(month);

-- name: ProjectSpending :many
SELECT key, cost FROM spending WHERE project = sqlc.arg(project) AND month = sqlc.arg(month) ORDER BY key;

-- name: AllSpending :many
SELECT project, key, cost FROM spending WHERE month = sqlc.arg(month) ORDER BY project, key;
