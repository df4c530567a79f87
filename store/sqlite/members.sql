-- name: JoinMember :exec
INSERT INTO members (id, address, version, lease_until) VALUES (?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET address = excluded.address, version = excluded.version, lease_until = excluded.lease_until;

-- name: RenewMember :execrows
UPDATE members SET lease_until = sqlc.arg(until) WHERE id = sqlc.arg(id);

-- name: ListMembers :many
SELECT id, address, version, lease_until FROM members ORDER BY id;

-- name: RemoveMember :execrows
DELETE FROM members WHERE id = sqlc.arg(id) AND lease_until <= sqlc.arg(before);

-- name: MemberExists :one
SELECT count(*) FROM members WHERE id = ?;

-- name: RunOwner :one
SELECT lease_owner, lease_until FROM responses WHERE id = ? AND project = ? AND deleted = 0;

-- name: AcquireLock :execrows
UPDATE locks SET owner = sqlc.arg(owner), lease_until = sqlc.arg(until)
WHERE name = sqlc.arg(name) AND (owner = sqlc.arg(owner) OR lease_until <= sqlc.arg(now));

-- name: CreateLock :execrows
INSERT INTO locks (name, owner, lease_until) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING;

-- name: ReleaseLock :exec
DELETE FROM locks WHERE name = ? AND owner = ?;
