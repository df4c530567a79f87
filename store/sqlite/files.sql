-- name: CreateFile :exec
INSERT INTO files (id, project, created_at, expires_at, purpose, bytes, body, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: GetFile :one
SELECT body FROM files WHERE id = ? AND project = ?;

-- name: FileTime :one
SELECT created_at FROM files WHERE id = ? AND project = ?;

-- name: ListFilesDescending :many
SELECT body FROM files
WHERE project = sqlc.arg(project) AND (CAST(sqlc.arg(purpose) AS TEXT) = '' OR purpose = CAST(sqlc.arg(purpose) AS TEXT))
  AND (created_at, id) < (CAST(sqlc.arg(after_time) AS INTEGER), CAST(sqlc.arg(after_id) AS TEXT))
ORDER BY created_at DESC, id DESC LIMIT sqlc.arg(n);

-- name: ListFilesAscending :many
SELECT body FROM files
WHERE project = sqlc.arg(project) AND (CAST(sqlc.arg(purpose) AS TEXT) = '' OR purpose = CAST(sqlc.arg(purpose) AS TEXT))
  AND (created_at, id) > (CAST(sqlc.arg(after_time) AS INTEGER), CAST(sqlc.arg(after_id) AS TEXT))
ORDER BY created_at, id LIMIT sqlc.arg(n);

-- name: ExpiredFiles :many
SELECT project, id FROM files WHERE expires_at <= sqlc.arg(now) ORDER BY expires_at, id LIMIT sqlc.arg(n);

-- name: DeleteFile :one
DELETE FROM files WHERE id = ? AND project = ? RETURNING seal;
