-- name: ProjectResponses :many
SELECT id FROM responses WHERE project = ? AND deleted = 0 LIMIT ?;

-- name: ProjectObjects :many
SELECT kind, id FROM objects WHERE project = ? AND parent = '' LIMIT ?;
