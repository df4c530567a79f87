-- name: CreateKey :exec
INSERT INTO keys (id, project, name, hash, tail, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7);

-- name: KeyByHash :one
SELECT id, project, name, tail, created_at, expires_at FROM keys WHERE hash = $1;

-- name: ListKeys :many
SELECT id, project, name, hash, tail, created_at, expires_at FROM keys ORDER BY created_at, id;

-- name: DeleteKey :execrows
DELETE FROM keys WHERE id = $1;
