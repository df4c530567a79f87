-- name: ProjectResponses :many
SELECT id FROM responses WHERE project = ? AND deleted = 0 LIMIT ?;

-- name: ProjectObjects :many
SELECT kind, id FROM objects WHERE project = ? AND parent = '' LIMIT ?;

-- StoredBytes returns the size of a project's rows; see migration 9.
-- name: StoredBytes :one
SELECT bytes FROM stored WHERE project = ?;

-- name: AddStored :exec
INSERT INTO stored (project, bytes) VALUES (?, ?)
ON CONFLICT (project) DO UPDATE SET bytes = bytes + excluded.bytes;
