-- +goose Up

-- A container with a unique name is the only running one of its project that has it.
ALTER TABLE containers ADD COLUMN unique_name INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX containers_by_unique_name ON containers (project, name) WHERE unique_name = 1 AND status = 'running';
