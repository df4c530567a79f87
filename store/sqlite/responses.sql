-- name: CreateResponse :exec
INSERT INTO responses (id, project, previous, container, final, stored, key, request_id, lease_owner, lease_until, seal)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: CreateRequest :exec
INSERT INTO requests (response, request, input) VALUES (?, ?, ?);

-- name: CreateBody :exec
INSERT INTO bodies (response, body, output) VALUES (?, ?, ?);

-- name: GetResponse :one
SELECT b.body, b.output, q.request, q.input, r.container, r.key, r.request_id
FROM responses r JOIN requests q ON q.response = r.id JOIN bodies b ON b.response = r.id
WHERE r.id = ? AND r.project = ? AND r.deleted = 0;

-- name: ResponseExists :one
SELECT EXISTS (SELECT 1 FROM responses WHERE id = ? AND project = ? AND deleted = 0);

-- name: DeleteResponse :one
UPDATE responses SET deleted = 1, final = 1, container = '', lease_owner = '', lease_until = 0
WHERE id = ? AND project = ? AND deleted = 0
RETURNING seal;

-- name: DeleteRequest :exec
DELETE FROM requests WHERE response = ?;

-- name: DeleteBody :exec
DELETE FROM bodies WHERE response = ?;

-- name: DeleteEvents :exec
DELETE FROM events WHERE response = ?;

-- PruneResponse removes a deleted response that no other continues.
-- name: PruneResponse :one
DELETE FROM responses
WHERE id = ? AND deleted = 1 AND NOT EXISTS (SELECT 1 FROM responses next WHERE next.previous = responses.id)
RETURNING previous;

-- NextEvent returns the next sequence number, for the owner of the lease,
-- and the key of the response.
-- name: NextEvent :one
SELECT CAST(coalesce((SELECT e.sequence_number + e.span FROM events e WHERE e.response = r.id ORDER BY e.sequence_number DESC LIMIT 1), 0) AS INTEGER) AS next, seal
FROM responses r
WHERE r.id = ? AND r.project = ? AND r.deleted = 0 AND r.final = 0 AND r.lease_owner = ?;

-- name: AppendEvents :exec
INSERT INTO events (response, sequence_number, type, data, span, size) VALUES (?, ?, '', ?, ?, ?);

-- name: UpdateBody :exec
UPDATE bodies SET body = ?, output = ? WHERE response = ?;

-- name: FinishResponse :one
UPDATE responses SET final = 1 WHERE id = ? RETURNING key;

-- name: Events :many
SELECT sequence_number, type, data FROM events
WHERE response = sqlc.arg(response) AND sequence_number >= sqlc.arg(first) AND sequence_number <= sqlc.arg(last) ORDER BY sequence_number;

-- EventSizes returns the sizes of rows without reading them, from the row that has the event
-- "next".
-- name: EventSizes :many
SELECT e.sequence_number, e.span, CAST(max(e.size, length(e.data)) AS INTEGER) AS bytes FROM events e
WHERE e.response = sqlc.arg(response) AND e.sequence_number >= (
    SELECT coalesce(max(f.sequence_number), 0) FROM events f
    WHERE f.response = sqlc.arg(response) AND f.sequence_number <= sqlc.arg(next))
ORDER BY e.sequence_number LIMIT sqlc.arg(most);

-- ResponseSize returns the size of a response without reading it.
-- name: ResponseSize :one
SELECT r.stored, r.final, CAST(length(b.body) + length(b.output) AS INTEGER) AS body, CAST(length(q.request) + length(q.input) AS INTEGER) AS request
FROM responses r JOIN requests q ON q.response = r.id JOIN bodies b ON b.response = r.id
WHERE r.id = ? AND r.project = ? AND r.deleted = 0;

-- name: GetBody :one
SELECT body, output FROM bodies WHERE response = ?;

-- name: ChainSize :one
WITH RECURSIVE chain (id, previous) AS (
    SELECT r.id, r.previous FROM responses r
    WHERE r.id = sqlc.arg(id) AND r.project = sqlc.arg(project) AND r.deleted = 0
    UNION ALL
    SELECT r.id, r.previous FROM responses r JOIN chain ON r.id = chain.previous
    WHERE r.project = sqlc.arg(project)
)
SELECT CAST(coalesce(sum(length(q.input) + length(b.output)), 0) AS INTEGER) AS bytes
FROM chain JOIN requests q ON q.response = chain.id JOIN bodies b ON b.response = chain.id;

-- Chain returns its rows unordered: a sort would copy all content.
-- name: Chain :many
WITH RECURSIVE chain (id, previous, container, deleted, depth) AS (
    SELECT r.id, r.previous, r.container, r.deleted, CAST(0 AS INTEGER) AS depth FROM responses r
    WHERE r.id = sqlc.arg(id) AND r.project = sqlc.arg(project) AND r.deleted = 0
    UNION ALL
    SELECT r.id, r.previous, r.container, r.deleted, chain.depth + 1 FROM responses r JOIN chain ON r.id = chain.previous
    WHERE r.project = sqlc.arg(project)
)
SELECT chain.id, chain.container, chain.depth, q.input, b.output
FROM chain JOIN requests q ON q.response = chain.id JOIN bodies b ON b.response = chain.id;

-- name: EventBytes :one
SELECT CAST(coalesce(sum(length(data) + 64), 0) AS INTEGER) AS bytes FROM events WHERE response = ?;

-- NewerResponses and OlderResponses return stored responses above or below an id, by creation.
-- open is 1 for those in progress, 0 for those that have ended, and -1 for both.
-- name: NewerResponses :many
SELECT r.id, CAST(length(b.body) AS INTEGER) AS bytes FROM responses r JOIN bodies b ON b.response = r.id
WHERE r.project = sqlc.arg(project) AND r.deleted = 0 AND r.id > sqlc.arg(after) AND r.stored = 1 AND r.final <> sqlc.arg(open)
ORDER BY r.id LIMIT sqlc.arg(most);

-- name: OlderResponses :many
SELECT r.id, CAST(length(b.body) AS INTEGER) AS bytes FROM responses r JOIN bodies b ON b.response = r.id
WHERE r.project = sqlc.arg(project) AND r.deleted = 0 AND r.id < sqlc.arg(after) AND r.stored = 1 AND r.final <> sqlc.arg(open)
ORDER BY r.id DESC LIMIT sqlc.arg(most);

-- name: BareBody :one
SELECT b.body FROM responses r JOIN bodies b ON b.response = r.id WHERE r.id = ? AND r.project = ? AND r.deleted = 0;
