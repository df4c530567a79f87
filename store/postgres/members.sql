-- Leases end by the database's clock: "lasts", "ago" and "silent" are milliseconds.

-- name: JoinMember :exec
INSERT INTO members (id, address, version, lease_until)
VALUES (sqlc.arg(id), sqlc.arg(address), sqlc.arg(version), CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) + sqlc.arg(lasts)::bigint)
ON CONFLICT (id) DO UPDATE SET address = excluded.address, version = excluded.version, lease_until = excluded.lease_until;

-- name: RenewMember :execrows
UPDATE members SET lease_until = CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) + sqlc.arg(lasts)::bigint WHERE id = sqlc.arg(id);

-- name: ListMembers :many
SELECT id, address, version, (CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) - lease_until)::bigint AS silent FROM members ORDER BY id;

-- name: RemoveMember :execrows
DELETE FROM members WHERE id = sqlc.arg(id) AND lease_until <= CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) - sqlc.arg(ago)::bigint;

-- name: MemberExists :one
SELECT count(*) FROM members WHERE id = $1;

-- name: RunOwner :one
SELECT lease_owner, (lease_until > CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint))::boolean AS held FROM responses
WHERE id = $1 AND project = $2 AND NOT deleted;

-- name: AcquireLock :execrows
INSERT INTO locks (name, owner, lease_until) VALUES (sqlc.arg(name), sqlc.arg(owner), CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) + sqlc.arg(lasts)::bigint)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until
WHERE locks.owner = excluded.owner OR locks.lease_until <= CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint);

-- name: ReleaseLock :exec
DELETE FROM locks WHERE name = $1 AND owner = $2;

-- name: SaveCheckpoint :execrows
INSERT INTO checkpoints (origin, server, public_key, size, signed) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (origin) DO UPDATE SET server = excluded.server, public_key = excluded.public_key, size = excluded.size, signed = excluded.signed
WHERE checkpoints.size <= excluded.size;

-- name: ListCheckpoints :many
SELECT origin, server, public_key, size, signed FROM checkpoints ORDER BY origin;
