-- name: CreateContainer :exec
INSERT INTO containers (id, project, created_at, name, status, body, key, memory_limit, counted_until, seal, unique_name) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: GetContainer :one
SELECT body FROM containers WHERE id = ? AND project = ?;

-- name: ContainerSeal :one
SELECT seal FROM containers WHERE id = ? AND project = ?;

-- name: ContainerTime :one
SELECT created_at FROM containers WHERE id = ? AND project = ?;

-- name: ListContainersDescending :many
SELECT body FROM containers
WHERE project = sqlc.arg(project) AND (CAST(sqlc.arg(name) AS TEXT) = '' OR name = CAST(sqlc.arg(hidden) AS TEXT) OR seal = 0 AND name = CAST(sqlc.arg(name) AS TEXT))
  AND (created_at, id) < (CAST(sqlc.arg(after_time) AS INTEGER), CAST(sqlc.arg(after_id) AS TEXT))
ORDER BY created_at DESC, id DESC LIMIT sqlc.arg(n);

-- name: ListContainersAscending :many
SELECT body FROM containers
WHERE project = sqlc.arg(project) AND (CAST(sqlc.arg(name) AS TEXT) = '' OR name = CAST(sqlc.arg(hidden) AS TEXT) OR seal = 0 AND name = CAST(sqlc.arg(name) AS TEXT))
  AND (created_at, id) > (CAST(sqlc.arg(after_time) AS INTEGER), CAST(sqlc.arg(after_id) AS TEXT))
ORDER BY created_at, id LIMIT sqlc.arg(n);

-- name: UpdateContainer :exec
UPDATE containers SET name = ?, status = ?, body = ? WHERE id = ?;

-- name: DeleteContainer :one
DELETE FROM containers WHERE id = ? AND project = ? RETURNING seal;

-- name: RunningContainers :many
SELECT project, body FROM containers WHERE status = 'running' ORDER BY id;

-- name: PutContainerFile :one
INSERT INTO container_files (container, path, id, created_at, source, bytes, box) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (container, path) DO UPDATE SET bytes = excluded.bytes,
    source = CASE WHEN excluded.source = 'user' THEN 'user' ELSE container_files.source END
RETURNING id, created_at, source;

-- name: GetContainerFile :one
SELECT f.path, f.created_at, f.source, f.bytes, f.box
FROM container_files f JOIN containers c ON c.id = f.container
WHERE f.container = ? AND f.id = ? AND c.project = ?;

-- name: ContainerFiles :many
SELECT id, path, created_at, source, bytes, box FROM container_files WHERE container = ? ORDER BY created_at, id;

-- name: DeleteContainerFile :execrows
DELETE FROM container_files
WHERE container_files.container = ? AND container_files.id = ?
  AND EXISTS (SELECT 1 FROM containers c WHERE c.id = container_files.container AND c.project = ?);
