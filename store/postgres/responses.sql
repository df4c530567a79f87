-- CreateResponse saves a response with a lease that lasts lease_left milliseconds.
-- name: CreateResponse :exec
INSERT INTO responses (id, project, previous, container, final, stored, key, request_id, lease_owner, lease_until, seal)
VALUES (sqlc.arg(id), sqlc.arg(project), sqlc.narg(previous), sqlc.arg(container), sqlc.arg(final), sqlc.arg(stored), sqlc.arg(key), sqlc.arg(request_id), sqlc.arg(lease_owner),
  CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) + sqlc.arg(lease_left)::bigint, sqlc.arg(seal));

-- name: CreateRequest :exec
INSERT INTO requests (response, request, input) VALUES ($1, $2, $3);

-- name: CreateBody :exec
INSERT INTO bodies (response, body, output) VALUES ($1, $2, $3);

-- name: GetResponse :one
SELECT b.body, b.output, q.request, q.input, r.container, r.key, r.request_id
FROM responses r JOIN requests q ON q.response = r.id JOIN bodies b ON b.response = r.id
WHERE r.id = $1 AND r.project = $2 AND NOT r.deleted;

-- name: ResponseExists :one
SELECT EXISTS (SELECT 1 FROM responses WHERE id = $1 AND project = $2 AND NOT deleted);

-- name: DeleteResponse :one
UPDATE responses SET deleted = true, final = true, container = '', lease_owner = '', lease_until = 0
WHERE id = $1 AND project = $2 AND NOT deleted
RETURNING seal;

-- name: DeleteRequest :exec
DELETE FROM requests WHERE response = $1;

-- name: DeleteBody :exec
DELETE FROM bodies WHERE response = $1;

-- name: DeleteEvents :exec
DELETE FROM events WHERE response = $1;

-- PruneResponse removes a deleted response that no other continues.
-- name: PruneResponse :one
DELETE FROM responses
WHERE responses.id = $1 AND responses.deleted AND NOT EXISTS (SELECT 1 FROM responses next WHERE next.previous = responses.id)
RETURNING responses.previous;

-- NextEvent returns the next sequence number, for the owner of the lease,
-- and the key of the response.
-- name: NextEvent :one
SELECT CAST(coalesce((SELECT e.sequence_number + e.span FROM events e WHERE e.response = r.id ORDER BY e.sequence_number DESC LIMIT 1), 0) AS bigint) AS next, seal
FROM responses r
WHERE r.id = $1 AND r.project = $2 AND NOT r.deleted AND NOT r.final AND r.lease_owner = $3;

-- name: AppendEvents :exec
INSERT INTO events (response, sequence_number, data, span, size) VALUES ($1, $2, $3, $4, $5);

-- name: UpdateBody :exec
UPDATE bodies SET body = $1, output = $2 WHERE response = $3;

-- name: FinishResponse :one
UPDATE responses SET final = true WHERE id = $1 RETURNING key;

-- name: Events :many
SELECT sequence_number, data FROM events
WHERE response = sqlc.arg(response) AND sequence_number >= sqlc.arg(first) AND sequence_number <= sqlc.arg(last) ORDER BY sequence_number;

-- EventSizes returns the sizes of rows without reading them, from the row that has the event
-- "next".
-- name: EventSizes :many
SELECT e.sequence_number, e.span, CAST(greatest(e.size, octet_length(e.data)) AS bigint) AS bytes FROM events e
WHERE e.response = sqlc.arg(response) AND e.sequence_number >= (
    SELECT coalesce(max(f.sequence_number), 0) FROM events f
    WHERE f.response = sqlc.arg(response) AND f.sequence_number <= sqlc.arg(next)::bigint)
ORDER BY e.sequence_number LIMIT sqlc.arg(most)::bigint;

-- ResponseSize returns the size of a response without reading it.
-- name: ResponseSize :one
SELECT r.stored, r.final, CAST(octet_length(b.body)::bigint + octet_length(b.output) AS bigint) AS body, CAST(octet_length(q.request)::bigint + octet_length(q.input) AS bigint) AS request
FROM responses r JOIN requests q ON q.response = r.id JOIN bodies b ON b.response = r.id
WHERE r.id = $1 AND r.project = $2 AND NOT r.deleted;

-- name: GetBody :one
SELECT body, output FROM bodies WHERE response = $1;

-- name: ChainSize :one
WITH RECURSIVE chain (id, previous) AS (
    SELECT r.id, r.previous FROM responses r
    WHERE r.id = sqlc.arg(id) AND r.project = sqlc.arg(project) AND NOT r.deleted
    UNION ALL
    SELECT r.id, r.previous FROM responses r JOIN chain ON r.id = chain.previous
    WHERE r.project = sqlc.arg(project)
)
SELECT CAST(coalesce(sum(octet_length(q.input)::bigint + octet_length(b.output)), 0) AS bigint) AS bytes
FROM chain JOIN requests q ON q.response = chain.id JOIN bodies b ON b.response = chain.id;

-- Chain returns its rows unordered: a sort would copy all content.
-- name: Chain :many
WITH RECURSIVE chain (id, previous, container, deleted, depth) AS (
    SELECT r.id, r.previous, r.container, r.deleted, CAST(0 AS bigint) AS depth FROM responses r
    WHERE r.id = sqlc.arg(id) AND r.project = sqlc.arg(project) AND NOT r.deleted
    UNION ALL
    SELECT r.id, r.previous, r.container, r.deleted, chain.depth + 1 FROM responses r JOIN chain ON r.id = chain.previous
    WHERE r.project = sqlc.arg(project)
)
SELECT chain.id, chain.container, chain.depth, q.input, b.output
FROM chain JOIN requests q ON q.response = chain.id JOIN bodies b ON b.response = chain.id;

-- name: EventBytes :one
SELECT CAST(coalesce(sum(octet_length(data) + 64), 0) AS bigint) AS bytes FROM events WHERE response = $1;

-- NewerResponses and OlderResponses return stored responses above or below an id, by creation.
-- open is true for those in progress, false for those that have ended, and NULL for both.
-- name: NewerResponses :many
SELECT r.id, CAST(octet_length(b.body) AS bigint) AS bytes FROM responses r JOIN bodies b ON b.response = r.id
WHERE r.project = sqlc.arg(project) AND NOT r.deleted AND r.id > sqlc.arg(after) AND r.stored AND r.final IS DISTINCT FROM sqlc.narg(open)::boolean
ORDER BY r.id LIMIT sqlc.arg(most)::bigint;

-- name: OlderResponses :many
SELECT r.id, CAST(octet_length(b.body) AS bigint) AS bytes FROM responses r JOIN bodies b ON b.response = r.id
WHERE r.project = sqlc.arg(project) AND NOT r.deleted AND r.id < sqlc.arg(after) AND r.stored AND r.final IS DISTINCT FROM sqlc.narg(open)::boolean
ORDER BY r.id DESC LIMIT sqlc.arg(most)::bigint;

-- name: BareBody :one
SELECT b.body FROM responses r JOIN bodies b ON b.response = r.id WHERE r.id = $1 AND r.project = $2 AND NOT r.deleted;
