package librechat

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/guest"
)

// Limits of files.
const (
	depth    = 8    // directories below the working directory
	maxFiles = 1000 // of a session, in an answer
	maxName  = 512  // bytes
)

// files returns the regular files of a session by their ids. Links are no files: a program could make them lead out.
func (v *visit) files() (map[string]guest.Entry, error) {
	list, err := v.client.List(v.r.Context(), v.home, depth)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, v.guestError(err)
	}
	found := map[string]guest.Entry{}
	for _, e := range list {
		if name := v.name(e); e.Regular && cleanName(name) == name {
			found[v.id(name)] = e
		}
	}
	return found, nil
}

// name returns the name of a file: its path below the working directory.
func (v *visit) name(e guest.Entry) string { return strings.TrimPrefix(e.Path, v.home+"/") }

// id returns the id of a file with a name.
func (v *visit) id(name string) string { return digest(idLength, string(v.session), name) }

// cleanName returns a name as a path below the working directory, or "" if it has no such form.
func cleanName(name string) string {
	hostile := func(c rune) bool { return unicode.IsControl(c) || c == '\u2028' || c == '\u2029' || c == '\\' }
	if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, hostile) {
		return ""
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/")
}

// object returns the file of the path.
func (v *visit) object() (guest.Entry, error) {
	all, err := v.files()
	if err != nil {
		return guest.Entry{}, err
	}
	e, ok := all[v.r.PathValue("object")]
	if !ok {
		return e, berth.Errorf(berth.CodeNotFound, "There is no such file in the session.")
	}
	return e, nil
}

// contentType returns the media type of a file, by its name.
func contentType(name string) string {
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}

// info returns what clients read about a file.
func (v *visit) info(e guest.Entry) map[string]any {
	name := v.name(e)
	id := v.id(name)
	return map[string]any{"id": id, "name": string(v.session) + "/" + id + path.Ext(name), "size": e.Size,
		"session_id": v.session, "storage_session_id": v.session, "contentType": contentType(name),
		"lastModified": e.Modified.UTC().Format(time.RFC3339Nano),
		"metadata":     map[string]string{"original-filename": name, "content-type": contentType(name)}}
}

// list serves GET /files/{session}.
func (v *visit) list() error {
	all, err := v.files()
	if err != nil {
		return err
	}
	out := []any{}
	for _, e := range all {
		if len(out) < maxFiles {
			out = append(out, v.info(e))
		}
	}
	return v.x.JSON(http.StatusOK, out)
}

// describe serves GET /sessions/{session}/objects/{object}.
func (v *visit) describe() error {
	e, err := v.object()
	if err != nil {
		return err
	}
	return v.x.JSON(http.StatusOK, v.info(e))
}

// delete serves DELETE /files/{session}/{object}.
func (v *visit) delete() error {
	e, err := v.object()
	if err != nil {
		return err
	}
	if err := v.client.Remove(v.r.Context(), v.home, v.name(e)); err != nil {
		return v.guestError(err)
	}
	return v.x.JSON(http.StatusOK, map[string]string{"message": "success"})
}

// download serves GET /download/{session}/{object}. A browser neither shows the file nor runs it.
func (v *visit) download() error {
	e, err := v.object()
	if err != nil {
		return err
	}
	body, size, err := v.client.ReadFile(v.r.Context(), v.home, v.name(e), "")
	if err != nil {
		return v.guestError(err)
	}
	defer body.Close()
	h := v.x.Header()
	h.Set("Content-Type", contentType(e.Path))
	h.Set("Content-Disposition", exchange.Attachment(path.Base(e.Path)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Cache-Control", "no-store")
	if size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	out := v.x.Patient()
	defer out.Renew() // the server sends the last bytes after the handler returns
	v.x.WriteHeader(http.StatusOK)
	if _, err := io.Copy(out, body); err != nil {
		v.x.Abort(err)
	}
	return nil
}

// upload serves POST /upload: a form with a file, which is the first one of a new session. The parameter session_id is
// for other servers of the cluster.
func (d *Door) upload(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if _, err := user(r, ""); err != nil {
		return err
	}
	query := r.URL.Query()
	if !valid(query.Get("session_id")) || !strings.HasPrefix(query.Get("session_id"), uploads) {
		query.Set("session_id", string(newSession(uploads, "")))
		r.URL.RawQuery = query.Encode()
	}
	s := sessionID(query.Get("session_id"))
	id, err := d.create(r, c, s)
	if err != nil {
		return err
	}
	v, release, err := d.open(x, r, c, s, id)
	if v == nil || err != nil {
		return err
	}
	defer release()
	name, err := v.store()
	if err != nil {
		if e := d.Remove(r, c.Project, id); e != nil {
			d.Log.Warn("failed to delete the container of an upload that failed; it expires", "container", id, "err", e)
		}
		return err
	}
	return x.JSON(http.StatusOK, map[string]any{"message": "success", "session_id": s, "storage_session_id": s,
		"files": []any{map[string]any{"fileId": v.id(name), "id": v.id(name), "filename": name, "name": name}}})
}

// store writes the file of a form.
func (v *visit) store() (name string, err error) {
	form, err := v.x.Form(v.r, "entity_id", "kind", "id", "version", "read_only", "user_id")
	if err != nil {
		return "", err
	}
	if !form.HasFile() {
		return "", berth.Invalid("file", "The form has no file.")
	}
	if name = cleanName(form.Filename); name == "" {
		return "", berth.Invalid("file", "The name of the file is empty, too long, or has control characters.")
	}
	if err := v.client.WriteFile(v.r.Context(), v.home, name, "", form); err != nil {
		if berth.ErrorCode(err) != berth.CodeInternal {
			return "", err
		}
		return "", v.guestError(fmt.Errorf("write an upload: %w", err))
	}
	return name, nil
}
