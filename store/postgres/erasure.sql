-- name: Doom :exec
INSERT INTO doomed (seal) SELECT unnest(sqlc.arg(seals)::bigint[]) ON CONFLICT DO NOTHING;

-- name: Doomed :many
SELECT seal FROM doomed;

-- name: Done :exec
DELETE FROM doomed WHERE seal = ANY (sqlc.arg(seals)::bigint[]);
