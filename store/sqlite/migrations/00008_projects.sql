-- What a project has, to remove it.

-- +goose Up
CREATE INDEX responses_by_project ON responses (project) WHERE deleted = 0;
