-- name: ProjectResponses :many
SELECT id FROM responses WHERE project = sqlc.arg(project) AND NOT deleted LIMIT sqlc.arg(n)::bigint;

-- name: ProjectObjects :many
SELECT kind, id FROM objects WHERE project = sqlc.arg(project) AND parent = '' LIMIT sqlc.arg(n)::bigint;

-- StoredBytes returns the size of a project's rows; see migration 2.
-- name: StoredBytes :one
SELECT bytes FROM stored WHERE project = $1;

-- name: AddStored :exec
INSERT INTO stored (project, bytes) VALUES ($1, $2)
ON CONFLICT (project) DO UPDATE SET bytes = stored.bytes + excluded.bytes;
