-- name: CreateKey :exec
INSERT INTO keys (id, project, name, hash, tail, created_at, expires_at, cost_per_month) VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: KeyByHash :one
SELECT id, project, name, tail, created_at, expires_at, cost_per_month FROM keys WHERE hash = $1;

-- name: ListKeys :many
SELECT id, project, name, hash, tail, created_at, expires_at, cost_per_month FROM keys ORDER BY created_at, id;

-- name: DeleteKey :execrows
DELETE FROM keys WHERE id = $1;

-- name: KeyLimit :one
SELECT cost_per_month FROM keys WHERE id = $1;

-- name: SetKeyLimit :execrows
UPDATE keys SET cost_per_month = $1 WHERE id = $2;
