-- AddItem indexes an item, unless another response has it.
-- name: AddItem :exec
INSERT OR IGNORE INTO items (project, id, response) VALUES (?, ?, ?);

-- name: ItemPlace :one
SELECT response FROM items WHERE project = ? AND id = ?;

-- name: ItemsOf :one
SELECT q.input, b.output FROM requests q JOIN bodies b ON b.response = q.response
WHERE q.response = ?;

-- name: ObjectOfKind :one
SELECT body FROM objects WHERE project = ? AND id = ? AND kind = ?
LIMIT 1;

-- name: DeleteItems :exec
DELETE FROM items WHERE response = ?;
