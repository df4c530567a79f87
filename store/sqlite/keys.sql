-- name: CreateKey :exec
INSERT INTO keys (id, project, name, hash, tail, created_at, expires_at, cost_per_month) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: KeyByHash :one
SELECT id, project, name, tail, created_at, expires_at, cost_per_month FROM keys WHERE hash = ?;

-- name: ListKeys :many
SELECT id, project, name, hash, tail, created_at, expires_at, cost_per_month FROM keys ORDER BY created_at, id;

-- name: DeleteKey :execrows
DELETE FROM keys WHERE id = ?;

-- name: KeyLimit :one
SELECT cost_per_month FROM keys WHERE id = ?;

-- name: SetKeyLimit :execrows
UPDATE keys SET cost_per_month = ? WHERE id = ?;
