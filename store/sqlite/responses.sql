-- name: CreateResponse :exec
INSERT INTO responses (id, project, previous, container, final, stored, body, output, request, input, next_event, lease_owner, lease_until)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: GetResponse :one
SELECT body, output, request, input, container FROM responses
WHERE id = ? AND project = ? AND deleted = 0;

-- name: DeleteResponse :execrows
UPDATE responses SET deleted = 1, final = 1, body = '', output = '', request = '', input = '', lease_owner = '', lease_until = 0
WHERE id = ? AND project = ? AND deleted = 0;

-- name: DeleteEvents :exec
DELETE FROM events WHERE response = ?;

-- name: AdvanceResponse :execrows
UPDATE responses SET next_event = sqlc.arg(next_event)
WHERE id = sqlc.arg(id) AND project = sqlc.arg(project) AND deleted = 0
  AND next_event = sqlc.arg(first_event) AND lease_owner = sqlc.arg(owner) AND final = 0;

-- name: FoldResponse :exec
UPDATE responses SET body = ?, output = ?, final = ? WHERE id = ?;

-- name: AppendEvent :exec
INSERT INTO events (response, sequence_number, type, data) VALUES (?, ?, ?, ?);

-- name: ResponseExists :one
SELECT EXISTS (SELECT 1 FROM responses WHERE id = ? AND project = ? AND deleted = 0);

-- name: Events :many
SELECT sequence_number, type, data FROM events
WHERE response = ? AND sequence_number > ? ORDER BY sequence_number LIMIT ?;

-- name: Chain :many
WITH RECURSIVE chain (id, previous, depth) AS (
    SELECT r.id, r.previous, 0 FROM responses r WHERE r.id = sqlc.arg(id) AND r.project = sqlc.arg(project) AND r.deleted = 0
    UNION ALL
    SELECT r.id, r.previous, chain.depth + 1 FROM responses r JOIN chain ON r.id = chain.previous
    WHERE r.project = sqlc.arg(project)
)
SELECT r.id, r.input, r.output, r.container FROM chain JOIN responses r ON r.id = chain.id
WHERE r.deleted = 0 ORDER BY chain.depth DESC;

-- name: AcquireRun :execrows
UPDATE responses SET lease_owner = sqlc.arg(owner), lease_until = sqlc.arg(until)
WHERE id = sqlc.arg(id) AND project = sqlc.arg(project) AND deleted = 0 AND final = 0
  AND (lease_owner = '' OR lease_owner = sqlc.arg(owner) OR lease_until <= sqlc.arg(now));

-- name: ReleaseRun :exec
UPDATE responses SET lease_owner = '', lease_until = 0
WHERE id = ? AND project = ? AND lease_owner = ?;

-- name: OrphanedRuns :many
SELECT project, id FROM responses
WHERE deleted = 0 AND (final = 0 OR stored = 0) AND lease_until <= sqlc.arg(now) ORDER BY id;

-- name: ReleaseOwner :exec
UPDATE responses SET lease_owner = '', lease_until = 0
WHERE lease_owner = ? AND deleted = 0 AND (final = 0 OR stored = 0);
