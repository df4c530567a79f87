-- How many bytes of bodies each project has here, with 256 for each row and 64 for each row of
-- events. Triggers count what is written in single rows; events, which are many, are counted by
-- appendEvents.

-- +goose Up
CREATE TABLE stored (
    project          text COLLATE "C" PRIMARY KEY,
    bytes            bigint NOT NULL
) WITH (fillfactor = 10);

-- +goose StatementBegin
CREATE FUNCTION add_stored(owner text, more bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO stored (project, bytes) VALUES (owner, more)
    ON CONFLICT (project) DO UPDATE SET bytes = stored.bytes + excluded.bytes;
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION count_request() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM add_stored(project, -octet_length(OLD.request)::bigint - octet_length(OLD.input) - 256) FROM responses WHERE id = OLD.response;
    ELSE
        PERFORM add_stored(project, octet_length(NEW.request)::bigint + octet_length(NEW.input) + 256) FROM responses WHERE id = NEW.response;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER stored_request AFTER INSERT OR DELETE ON requests FOR EACH ROW EXECUTE FUNCTION count_request();

-- +goose StatementBegin
CREATE FUNCTION count_body() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM add_stored(project, -octet_length(OLD.body)::bigint - octet_length(OLD.output) - 256) FROM responses WHERE id = OLD.response;
    ELSIF TG_OP = 'INSERT' THEN
        PERFORM add_stored(project, octet_length(NEW.body)::bigint + octet_length(NEW.output) + 256) FROM responses WHERE id = NEW.response;
    ELSE
        PERFORM add_stored(project, octet_length(NEW.body)::bigint + octet_length(NEW.output) - octet_length(OLD.body) - octet_length(OLD.output))
        FROM responses WHERE id = NEW.response;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER stored_body AFTER INSERT OR UPDATE OR DELETE ON bodies FOR EACH ROW EXECUTE FUNCTION count_body();

-- +goose StatementBegin
CREATE FUNCTION count_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM add_stored(OLD.project, -octet_length(OLD.body)::bigint - 256);
    ELSIF TG_OP = 'INSERT' THEN
        PERFORM add_stored(NEW.project, octet_length(NEW.body)::bigint + 256);
    ELSE
        PERFORM add_stored(NEW.project, octet_length(NEW.body)::bigint - octet_length(OLD.body));
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER stored_object AFTER INSERT OR UPDATE OF body OR DELETE ON objects FOR EACH ROW EXECUTE FUNCTION count_row();
CREATE TRIGGER stored_container AFTER INSERT OR UPDATE OF body OR DELETE ON containers FOR EACH ROW EXECUTE FUNCTION count_row();
CREATE TRIGGER stored_file AFTER INSERT OR UPDATE OF body OR DELETE ON files FOR EACH ROW EXECUTE FUNCTION count_row();

-- The files of a container are deleted after it: their own trigger does not find it then.
-- +goose StatementBegin
CREATE FUNCTION count_container_files() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM add_stored(OLD.project, -coalesce(sum(octet_length(box) + 256), 0)::bigint) FROM container_files WHERE container = OLD.id;
    RETURN OLD;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER stored_container_files BEFORE DELETE ON containers FOR EACH ROW EXECUTE FUNCTION count_container_files();

-- +goose StatementBegin
CREATE FUNCTION count_container_file() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM add_stored(project, -octet_length(OLD.box)::bigint - 256) FROM containers WHERE id = OLD.container;
    ELSE
        PERFORM add_stored(project, octet_length(NEW.box)::bigint + 256) FROM containers WHERE id = NEW.container;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER stored_container_file AFTER INSERT OR DELETE ON container_files FOR EACH ROW EXECUTE FUNCTION count_container_file();
