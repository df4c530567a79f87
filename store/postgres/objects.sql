-- name: CreateObject :execrows
INSERT INTO objects (project, kind, parent, id, created_at, expires_at, body, seal)
SELECT sqlc.arg(project)::text, sqlc.arg(kind)::text, sqlc.arg(parent)::text, sqlc.arg(id)::text, sqlc.arg(created_at)::bigint, sqlc.narg(expires_at)::bigint, sqlc.arg(body)::bytea, sqlc.arg(seal)::bigint
WHERE sqlc.arg(parent)::text = '' OR EXISTS (SELECT 1 FROM objects WHERE project = sqlc.arg(project)::text AND id = sqlc.arg(parent)::text)
  OR EXISTS (SELECT 1 FROM containers WHERE id = sqlc.arg(parent)::text AND project = sqlc.arg(project)::text);

-- name: AddObject :exec
INSERT INTO objects (project, kind, parent, id, created_at, expires_at, body, seal)
SELECT sqlc.arg(project)::text, sqlc.arg(kind)::text, sqlc.arg(parent)::text, sqlc.arg(id)::text, sqlc.arg(created_at)::bigint, sqlc.narg(expires_at)::bigint, sqlc.arg(body)::bytea, sqlc.arg(seal)::bigint
WHERE sqlc.arg(parent)::text = '' OR EXISTS (SELECT 1 FROM objects WHERE project = sqlc.arg(project)::text AND id = sqlc.arg(parent)::text)
  OR EXISTS (SELECT 1 FROM containers WHERE id = sqlc.arg(parent)::text AND project = sqlc.arg(project)::text)
ON CONFLICT DO NOTHING;

-- name: GetObject :one
SELECT number, created_at, expires_at, body FROM objects
WHERE project = sqlc.arg(project)::text AND parent = sqlc.arg(parent)::text AND kind = sqlc.arg(kind) AND id = sqlc.arg(id);

-- name: ListObjectsAscending :many
SELECT id, created_at, expires_at, body FROM objects
WHERE project = sqlc.arg(project)::text AND parent = sqlc.arg(parent)::text AND kind = sqlc.arg(kind)
  AND number > sqlc.arg(above) AND number < sqlc.arg(below)
ORDER BY number LIMIT sqlc.arg(n)::bigint;

-- name: ListObjectsDescending :many
SELECT id, created_at, expires_at, body FROM objects
WHERE project = sqlc.arg(project)::text AND parent = sqlc.arg(parent)::text AND kind = sqlc.arg(kind)
  AND number > sqlc.arg(above) AND number < sqlc.arg(below)
ORDER BY number DESC LIMIT sqlc.arg(n)::bigint;

-- ObjectSize returns the size of an object without reading it.
-- name: ObjectSize :one
SELECT CAST(octet_length(body) AS bigint) AS bytes FROM objects
WHERE project = sqlc.arg(project)::text AND parent = sqlc.arg(parent)::text AND kind = sqlc.arg(kind) AND id = sqlc.arg(id);

-- name: ObjectSizesAscending :many
SELECT CAST(octet_length(body) AS bigint) AS bytes FROM objects
WHERE project = sqlc.arg(project)::text AND parent = sqlc.arg(parent)::text AND kind = sqlc.arg(kind)
  AND number > sqlc.arg(above) AND number < sqlc.arg(below)
ORDER BY number LIMIT sqlc.arg(n)::bigint;

-- name: ObjectSizesDescending :many
SELECT CAST(octet_length(body) AS bigint) AS bytes FROM objects
WHERE project = sqlc.arg(project)::text AND parent = sqlc.arg(parent)::text AND kind = sqlc.arg(kind)
  AND number > sqlc.arg(above) AND number < sqlc.arg(below)
ORDER BY number DESC LIMIT sqlc.arg(n)::bigint;

-- name: UpdateObject :exec
UPDATE objects SET expires_at = sqlc.narg(expires_at), body = sqlc.arg(body) WHERE number = sqlc.arg(number);

-- name: DeleteObject :one
DELETE FROM objects
WHERE project = sqlc.arg(project)::text AND parent = sqlc.arg(parent)::text AND kind = sqlc.arg(kind) AND id = sqlc.arg(id)
RETURNING seal;

-- name: DeleteChildObjects :many
DELETE FROM objects WHERE project = sqlc.arg(project)::text AND parent = sqlc.arg(parent)::text
RETURNING id, seal;

-- name: ExpiredObjects :many
SELECT project, parent, id FROM objects
WHERE kind = sqlc.arg(kind) AND expires_at <= sqlc.arg(now)::bigint
ORDER BY expires_at LIMIT sqlc.arg(n)::bigint;
