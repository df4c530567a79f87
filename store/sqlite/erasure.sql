-- name: Mark :one
SELECT mark FROM ring;

-- name: SetMark :exec
INSERT INTO ring (mark) VALUES (?);

-- name: Doom :exec
INSERT OR IGNORE INTO doomed (seal) VALUES (?);

-- name: Doomed :many
SELECT seal FROM doomed;

-- name: Done :exec
DELETE FROM doomed WHERE seal = ?;
