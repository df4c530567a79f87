-- name: CreateContainer :exec
INSERT INTO containers (id, project, created_at, name, status, body, key, memory_limit, counted_until, seal, unique_name) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: GetContainer :one
SELECT body FROM containers WHERE id = $1 AND project = $2;

-- name: ContainerSeal :one
SELECT seal FROM containers WHERE id = $1 AND project = $2;

-- name: ContainerTime :one
SELECT created_at FROM containers WHERE id = $1 AND project = $2;

-- name: ListContainersDescending :many
SELECT body FROM containers
WHERE project = sqlc.arg(project) AND (sqlc.arg(hidden)::text = '' OR name = sqlc.arg(hidden)::text)
  AND (created_at, id) < (sqlc.arg(after_time)::bigint, sqlc.arg(after_id)::text)
ORDER BY created_at DESC, id DESC LIMIT sqlc.arg(n)::bigint;

-- name: ListContainersAscending :many
SELECT body FROM containers
WHERE project = sqlc.arg(project) AND (sqlc.arg(hidden)::text = '' OR name = sqlc.arg(hidden)::text)
  AND (created_at, id) > (sqlc.arg(after_time)::bigint, sqlc.arg(after_id)::text)
ORDER BY created_at, id LIMIT sqlc.arg(n)::bigint;

-- name: UpdateContainer :exec
UPDATE containers SET name = $1, status = $2, body = $3 WHERE id = $4;

-- name: DeleteContainer :one
DELETE FROM containers WHERE id = $1 AND project = $2 RETURNING seal;

-- name: RunningContainers :many
SELECT project, body FROM containers WHERE status = 'running' ORDER BY id;

-- name: PutContainerFile :one
INSERT INTO container_files (container, path, id, created_at, source, bytes, box) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (container, path) DO UPDATE SET bytes = excluded.bytes,
    source = CASE WHEN excluded.source = 'user' THEN 'user' ELSE container_files.source END
RETURNING id, created_at, source;

-- name: GetContainerFile :one
SELECT f.path, f.created_at, f.source, f.bytes, f.box
FROM container_files f JOIN containers c ON c.id = f.container
WHERE f.container = $1 AND f.id = $2 AND c.project = $3;

-- name: ContainerFiles :many
SELECT id, path, created_at, source, bytes, box FROM container_files WHERE container = $1 ORDER BY created_at, id;

-- name: DeleteContainerFile :execrows
DELETE FROM container_files
WHERE container_files.container = $1 AND container_files.id = $2
  AND EXISTS (SELECT 1 FROM containers c WHERE c.id = container_files.container AND c.project = $3);
