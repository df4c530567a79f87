-- How many bytes of bodies each project has here, with 256 for each row and 64 for each
-- event. Triggers count what is written in single rows; events, which are many, are
-- counted by appendEvents.

-- +goose Up
CREATE TABLE stored (
    project          TEXT PRIMARY KEY,
    bytes            INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO stored
SELECT project, sum(bytes) FROM (
    SELECT r.project AS project, length(q.request) + length(q.input) + 256 AS bytes FROM requests q JOIN responses r ON r.id = q.response
    UNION ALL SELECT r.project, length(b.body) + length(b.output) + 256 FROM bodies b JOIN responses r ON r.id = b.response
    UNION ALL SELECT r.project, length(e.data) + 64 FROM events e JOIN responses r ON r.id = e.response
    UNION ALL SELECT project, length(body) + 256 FROM objects
    UNION ALL SELECT project, length(body) + 256 FROM containers
    UNION ALL SELECT c.project, length(f.box) + 256 FROM container_files f JOIN containers c ON c.id = f.container
    UNION ALL SELECT project, length(body) + 256 FROM files
) GROUP BY project;

-- +goose StatementBegin
CREATE TRIGGER stored_request AFTER INSERT ON requests BEGIN
    INSERT INTO stored SELECT project, length(NEW.request) + length(NEW.input) + 256 FROM responses WHERE id = NEW.response
    ON CONFLICT (project) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER stored_request_gone AFTER DELETE ON requests BEGIN
    UPDATE stored SET bytes = bytes - length(OLD.request) - length(OLD.input) - 256
    WHERE project = (SELECT project FROM responses WHERE id = OLD.response);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER stored_body AFTER INSERT ON bodies BEGIN
    INSERT INTO stored SELECT project, length(NEW.body) + length(NEW.output) + 256 FROM responses WHERE id = NEW.response
    ON CONFLICT (project) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER stored_body_change AFTER UPDATE ON bodies BEGIN
    UPDATE stored SET bytes = bytes + length(NEW.body) + length(NEW.output) - length(OLD.body) - length(OLD.output)
    WHERE project = (SELECT project FROM responses WHERE id = NEW.response);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER stored_body_gone AFTER DELETE ON bodies BEGIN
    UPDATE stored SET bytes = bytes - length(OLD.body) - length(OLD.output) - 256
    WHERE project = (SELECT project FROM responses WHERE id = OLD.response);
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER stored_object AFTER INSERT ON objects BEGIN
    INSERT INTO stored VALUES (NEW.project, length(NEW.body) + 256)
    ON CONFLICT (project) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER stored_object_change AFTER UPDATE ON objects BEGIN
    UPDATE stored SET bytes = bytes + length(NEW.body) - length(OLD.body) WHERE project = NEW.project;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER stored_object_gone AFTER DELETE ON objects BEGIN
    UPDATE stored SET bytes = bytes - length(OLD.body) - 256 WHERE project = OLD.project;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER stored_container AFTER INSERT ON containers BEGIN
    INSERT INTO stored VALUES (NEW.project, length(NEW.body) + 256)
    ON CONFLICT (project) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER stored_container_change AFTER UPDATE OF body ON containers BEGIN
    UPDATE stored SET bytes = bytes + length(NEW.body) - length(OLD.body) WHERE project = NEW.project;
END;
-- +goose StatementEnd
-- The files of a container go with it, after it: their own trigger does not find it then.
-- +goose StatementBegin
CREATE TRIGGER stored_container_gone BEFORE DELETE ON containers BEGIN
    UPDATE stored SET bytes = bytes - length(OLD.body) - 256
        - (SELECT coalesce(sum(length(box) + 256), 0) FROM container_files WHERE container = OLD.id)
    WHERE project = OLD.project;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER stored_container_file AFTER INSERT ON container_files BEGIN
    INSERT INTO stored SELECT project, length(NEW.box) + 256 FROM containers WHERE id = NEW.container
    ON CONFLICT (project) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER stored_container_file_gone AFTER DELETE ON container_files BEGIN
    UPDATE stored SET bytes = bytes - length(OLD.box) - 256
    WHERE project = (SELECT project FROM containers WHERE id = OLD.container);
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER stored_file AFTER INSERT ON files BEGIN
    INSERT INTO stored VALUES (NEW.project, length(NEW.body) + 256)
    ON CONFLICT (project) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER stored_file_gone AFTER DELETE ON files BEGIN
    UPDATE stored SET bytes = bytes - length(OLD.body) - 256 WHERE project = OLD.project;
END;
-- +goose StatementEnd
