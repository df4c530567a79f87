-- The order of a project's responses, to list them.

-- +goose Up
DROP INDEX responses_by_project;
CREATE INDEX responses_by_project ON responses (project, id) WHERE NOT deleted;

-- +goose Down
DROP INDEX responses_by_project;
CREATE INDEX responses_by_project ON responses (project) WHERE NOT deleted;
