-- AddItem indexes an item, unless another response has it.
-- name: AddItem :exec
INSERT INTO items (project, id, response) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- name: ItemPlace :one
SELECT response FROM items WHERE project = $1 AND id = $2;

-- name: ItemsOf :one
SELECT q.input, b.output FROM requests q JOIN bodies b ON b.response = q.response
WHERE q.response = $1;

-- name: ObjectOfKind :one
SELECT body FROM objects WHERE project = $1 AND id = $2 AND kind = $3
LIMIT 1;

-- name: DeleteItems :exec
DELETE FROM items WHERE response = $1;
