-- name: CountDeletion :exec
UPDATE erasure SET deleted = deleted + 1;

-- name: Erasure :one
SELECT deleted, erased FROM erasure;

-- name: SetErased :exec
UPDATE erasure SET erased = ?;
