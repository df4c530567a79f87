-- name: AcquireRun :execrows
UPDATE responses SET lease_owner = sqlc.arg(owner), lease_until = sqlc.arg(until)
WHERE id = sqlc.arg(id) AND project = sqlc.arg(project) AND deleted = 0 AND final = 0
  AND (lease_owner = '' OR lease_owner = sqlc.arg(owner) OR lease_until <= sqlc.arg(now));

-- name: RenewRun :execrows
UPDATE responses SET lease_until = sqlc.arg(until)
WHERE id = sqlc.arg(id) AND project = sqlc.arg(project) AND deleted = 0 AND final = 0 AND lease_owner = sqlc.arg(owner);

-- name: ReleaseRun :exec
UPDATE responses SET lease_owner = '', lease_until = 0
WHERE id = ? AND project = ? AND lease_owner = ?;

-- name: OrphanedRuns :many
SELECT project, id FROM responses
WHERE deleted = 0 AND (final = 0 OR stored = 0) AND lease_until <= sqlc.arg(now) ORDER BY lease_until, id;

-- name: ReleaseOwner :exec
UPDATE responses SET lease_owner = '', lease_until = 0
WHERE lease_owner = ? AND deleted = 0 AND (final = 0 OR stored = 0);
