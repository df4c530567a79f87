-- name: CreateObject :execrows
INSERT INTO objects (project, kind, parent, id, created_at, expires_at, body, seal)
SELECT sqlc.arg(project), sqlc.arg(kind), sqlc.arg(parent), sqlc.arg(id), sqlc.arg(created_at), sqlc.arg(expires_at), sqlc.arg(body), sqlc.arg(seal)
WHERE sqlc.arg(parent) = '' OR EXISTS (SELECT 1 FROM objects WHERE project = sqlc.arg(project) AND id = sqlc.arg(parent))
  OR EXISTS (SELECT 1 FROM containers WHERE id = sqlc.arg(parent) AND project = sqlc.arg(project));

-- name: AddObject :exec
INSERT INTO objects (project, kind, parent, id, created_at, expires_at, body, seal)
SELECT sqlc.arg(project), sqlc.arg(kind), sqlc.arg(parent), sqlc.arg(id), sqlc.arg(created_at), sqlc.arg(expires_at), sqlc.arg(body), sqlc.arg(seal)
WHERE sqlc.arg(parent) = '' OR EXISTS (SELECT 1 FROM objects WHERE project = sqlc.arg(project) AND id = sqlc.arg(parent))
  OR EXISTS (SELECT 1 FROM containers WHERE id = sqlc.arg(parent) AND project = sqlc.arg(project))
ON CONFLICT DO NOTHING;

-- name: GetObject :one
SELECT number, created_at, expires_at, body FROM objects
WHERE project = sqlc.arg(project) AND parent = sqlc.arg(parent) AND kind = sqlc.arg(kind) AND id = sqlc.arg(id);

-- name: ListObjectsAscending :many
SELECT id, created_at, expires_at, body FROM objects
WHERE project = sqlc.arg(project) AND parent = sqlc.arg(parent) AND kind = sqlc.arg(kind)
  AND number > sqlc.arg(above) AND number < sqlc.arg(below)
ORDER BY number LIMIT sqlc.arg(n);

-- name: ListObjectsDescending :many
SELECT id, created_at, expires_at, body FROM objects
WHERE project = sqlc.arg(project) AND parent = sqlc.arg(parent) AND kind = sqlc.arg(kind)
  AND number > sqlc.arg(above) AND number < sqlc.arg(below)
ORDER BY number DESC LIMIT sqlc.arg(n);

-- ObjectSize returns the size of an object without reading it.
-- name: ObjectSize :one
SELECT CAST(length(body) AS INTEGER) AS bytes FROM objects
WHERE project = sqlc.arg(project) AND parent = sqlc.arg(parent) AND kind = sqlc.arg(kind) AND id = sqlc.arg(id);

-- name: ObjectSizesAscending :many
SELECT CAST(length(body) AS INTEGER) AS bytes FROM objects
WHERE project = sqlc.arg(project) AND parent = sqlc.arg(parent) AND kind = sqlc.arg(kind)
  AND number > sqlc.arg(above) AND number < sqlc.arg(below)
ORDER BY number LIMIT sqlc.arg(n);

-- name: ObjectSizesDescending :many
SELECT CAST(length(body) AS INTEGER) AS bytes FROM objects
WHERE project = sqlc.arg(project) AND parent = sqlc.arg(parent) AND kind = sqlc.arg(kind)
  AND number > sqlc.arg(above) AND number < sqlc.arg(below)
ORDER BY number DESC LIMIT sqlc.arg(n);

-- name: UpdateObject :exec
UPDATE objects SET expires_at = sqlc.arg(expires_at), body = sqlc.arg(body) WHERE number = sqlc.arg(number);

-- name: DeleteObject :one
DELETE FROM objects
WHERE project = sqlc.arg(project) AND parent = sqlc.arg(parent) AND kind = sqlc.arg(kind) AND id = sqlc.arg(id)
RETURNING seal;

-- name: DeleteChildObjects :many
DELETE FROM objects WHERE project = sqlc.arg(project) AND parent = sqlc.arg(parent)
RETURNING id, seal;

-- name: ExpiredObjects :many
SELECT project, parent, id FROM objects
WHERE kind = sqlc.arg(kind) AND expires_at <= sqlc.arg(now)
ORDER BY expires_at LIMIT sqlc.arg(n);
