-- OthersHold returns what other servers have of a number.
-- name: OthersHold :one
SELECT coalesce(sum(s.held), 0)::bigint AS held FROM shares s JOIN members m ON m.id = s.server
WHERE s.project = sqlc.arg(project) AND s.kind = sqlc.arg(kind) AND s.server <> sqlc.arg(server)
  AND (sqlc.arg(silent)::boolean OR m.lease_until > CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint));

-- name: SetHeld :exec
INSERT INTO shares (project, kind, server, held) VALUES ($1, $2, $3, $4)
ON CONFLICT (project, kind, server) DO UPDATE SET held = excluded.held;

-- name: DropHeld :exec
DELETE FROM shares WHERE project = $1 AND kind = $2 AND server = $3;

-- FillRate refills a bucket up to now and returns its level. A new size takes effect at once: the
-- level changes by the difference.
-- name: FillRate :one
INSERT INTO rates (project, kind, size, level, at)
VALUES (sqlc.arg(project), sqlc.arg(kind), sqlc.arg(size)::bigint, sqlc.arg(size)::bigint, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint))
ON CONFLICT (project, kind) DO UPDATE SET
  level = least(rates.level + greatest(excluded.at - rates.at, 0) * (rates.size / 60000.0::double precision), rates.size) + excluded.size - rates.size,
  size = excluded.size, at = greatest(excluded.at, rates.at)
RETURNING level;

-- name: UseRate :exec
UPDATE rates SET level = least(level - sqlc.arg(used)::double precision, size) WHERE project = sqlc.arg(project) AND kind = sqlc.arg(kind);

-- name: ForgetShares :exec
DELETE FROM shares WHERE server = sqlc.arg(server) OR NOT EXISTS (SELECT FROM members m WHERE m.id = shares.server);

-- ForgetRates removes buckets that are full again.
-- name: ForgetRates :exec
DELETE FROM rates WHERE at < CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) - 86400000;
