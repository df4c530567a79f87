-- Leases end by the database's clock: "lasts" and "ahead" are milliseconds from now.

-- name: AcquireRun :execrows
UPDATE responses SET lease_owner = sqlc.arg(owner), lease_until = CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) + sqlc.arg(lasts)::bigint
WHERE id = sqlc.arg(id) AND project = sqlc.arg(project) AND NOT deleted AND NOT final
  AND (lease_owner = '' OR lease_owner = sqlc.arg(owner) OR lease_until <= CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) + sqlc.arg(ahead)::bigint);

-- name: RenewRun :execrows
UPDATE responses SET lease_until = CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) + sqlc.arg(lasts)::bigint
WHERE id = sqlc.arg(id) AND project = sqlc.arg(project) AND NOT deleted AND NOT final AND lease_owner = sqlc.arg(owner);

-- name: ReleaseRun :exec
UPDATE responses SET lease_owner = '', lease_until = 0
WHERE id = $1 AND project = $2 AND lease_owner = $3;

-- name: OrphanedRuns :many
SELECT project, id FROM responses
WHERE NOT deleted AND (NOT final OR NOT stored) AND lease_until <= CAST(extract(epoch FROM now()) * 1000 AS bigint) + sqlc.arg(ahead)::bigint ORDER BY lease_until, id;

-- name: ReleaseOwner :exec
UPDATE responses SET lease_owner = '', lease_until = 0
WHERE lease_owner = $1 AND NOT deleted AND (NOT final OR NOT stored);
