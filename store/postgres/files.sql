-- name: CreateFile :exec
INSERT INTO files (id, project, created_at, expires_at, purpose, bytes, body, seal) VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: GetFile :one
SELECT body FROM files WHERE id = $1 AND project = $2;

-- name: FileTime :one
SELECT created_at FROM files WHERE id = $1 AND project = $2;

-- name: ListFilesDescending :many
SELECT body FROM files
WHERE project = sqlc.arg(project) AND (sqlc.arg(purpose)::text = '' OR purpose = sqlc.arg(purpose)::text)
  AND (created_at, id) < (sqlc.arg(after_time)::bigint, sqlc.arg(after_id)::text)
ORDER BY created_at DESC, id DESC LIMIT sqlc.arg(n)::bigint;

-- name: ListFilesAscending :many
SELECT body FROM files
WHERE project = sqlc.arg(project) AND (sqlc.arg(purpose)::text = '' OR purpose = sqlc.arg(purpose)::text)
  AND (created_at, id) > (sqlc.arg(after_time)::bigint, sqlc.arg(after_id)::text)
ORDER BY created_at, id LIMIT sqlc.arg(n)::bigint;

-- name: ExpiredFiles :many
SELECT project, id FROM files WHERE expires_at <= sqlc.arg(now)::bigint ORDER BY expires_at, id LIMIT sqlc.arg(n)::bigint;

-- name: DeleteFile :one
DELETE FROM files WHERE id = $1 AND project = $2 RETURNING seal;
