package e2b

import (
	"context"
	"io"
	"io/fs"
	"math"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/internal/rule"
)

// contentPath starts the paths of requests for the content of a volume: contentPath{volume}/{part}.
const contentPath = "/volumecontent/"

// A contentFailure is an error of a request for the content of a volume. Its code is a text, unlike
// that of a failure.
type contentFailure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// contentCodes are the codes of such errors by their status.
var contentCodes = map[int]string{
	http.StatusBadRequest: "invalid_request", http.StatusUnauthorized: "unauthorized",
	http.StatusForbidden: "forbidden", http.StatusNotFound: "not_found",
	http.StatusMethodNotAllowed: "method_not_allowed", http.StatusConflict: "conflict",
	http.StatusRequestEntityTooLarge: "too_large",
	http.StatusTooManyRequests:       "rate_limited",
	http.StatusNotImplemented:        "not_implemented", http.StatusServiceUnavailable: "unavailable",
	http.StatusInsufficientStorage: "insufficient_storage",
}

func writeContentError(x *exchange.Exchange, status int, e exchange.Error) {
	code := contentCodes[status]
	if code == "" {
		code = "internal"
	}
	_ = x.JSON(status, contentFailure{code, e.Message})
}

// A contentRefusal is an error with a status that no code of an error has.
func contentRefusal(status int, message string) error {
	return &refusal{status, contentFailure{contentCodes[status], message}}
}

// token returns the token of a volume, which gives access to its content until it or the caller's key is deleted.
func (h *volumes) token(c berth.Caller, id berth.VolumeID) string {
	of := string(c.Project) + "." + string(id)
	return of + "." + h.tokens.give(volumePurpose, of, c.Key)
}

// volumeOf returns the volume of a token, and the project and the key of its holder.
func (h *volumes) volumeOf(ctx context.Context, token string) (c berth.Caller, id berth.VolumeID, ok bool, err error) {
	parts := strings.SplitN(token, ".", 3)
	if len(parts) < 3 {
		return c, "", false, nil
	}
	c.Project, id = berth.ProjectID(parts[0]), berth.VolumeID(parts[1])
	c.Key, ok, err = h.tokens.holder(ctx, volumePurpose, c.Project, parts[0]+"."+parts[1], parts[2])
	return c, id, ok, err
}

// A contentHandler answers a request for the content of a volume.
type contentHandler func(ctx context.Context, x *exchange.Exchange, r *http.Request, c *volume.Content) error

// contentHandlers are the parts of the content by method.
var contentHandlers = map[string]map[string]contentHandler{
	"path": {http.MethodGet: statPath, http.MethodPatch: changePath, http.MethodDelete: removePath},
	"dir":  {http.MethodGet: listDir, http.MethodPost: makeDir},
	"file": {http.MethodGet: readFile, http.MethodPut: writeFile},
}

// visitor identifies the caller of a request for the content of a volume, and finds its handler. The token of the
// volume alone is the permission.
func (h *volumes) visitor(x *exchange.Exchange, r *http.Request) (v exchange.Visit, err error) {
	name, part, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, contentPath), "/")
	methods, ok := contentHandlers[part]
	if !ok {
		return v, contentRefusal(http.StatusNotFound, "This server does not serve "+r.Method+" "+
			rule.Clip(r.URL.Path)+".")
	}
	handle, ok := methods[r.Method]
	if !ok {
		return v, contentRefusal(http.StatusMethodNotAllowed, "Method "+rule.Clip(r.Method)+" is not allowed here.")
	}
	if h.service == nil {
		return v, contentRefusal(http.StatusNotImplemented, "This server cannot store volumes.")
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	c, id, ok, err := h.volumeOf(r.Context(), token)
	if err != nil {
		return v, err
	}
	if !ok {
		x.Header().Set("WWW-Authenticate", "Bearer")
		return v, contentRefusal(http.StatusUnauthorized,
			"This request needs the token of the volume, which Volume.create and Volume.connect return, in the header Authorization: Bearer.")
	}
	if string(id) != name {
		return v, contentRefusal(http.StatusNotFound, "Volume '"+rule.Clip(name)+"' not found.")
	}
	conns.Known(r.Context())
	// The volume's own size bounds what it stores. The owner or the mode of a file need no space.
	v = exchange.Visit{Caller: c, Traits: exchange.StoresNothing}
	v.Handle = func(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
		return h.service.Visit(r.Context(), c.Project, id, func(ctx context.Context, content *volume.Content) error {
			return handle(ctx, x, r, content)
		})
	}
	return v, nil
}

// pathOf returns the parameter path of a request.
func pathOf(q *exchange.Query) string {
	name := q.Text("path")
	if name == "" {
		q.Fail(rule.Missing("path"))
	}
	return name
}

// attributesOf returns the attributes in the parameters of a request.
func attributesOf(q *exchange.Query) volume.Attributes {
	value := func(name string, most int64) *uint32 {
		n := q.Integer(name, -1, 0, most)
		if n < 0 {
			return nil
		}
		return new(uint32(n))
	}
	return volume.Attributes{UID: value("uid", maxID), GID: value("gid", maxID), Mode: value("mode", volume.MaxMode)}
}

// maxID is the largest id of a user or group.
const maxID = math.MaxUint32 - 1

// statPath serves GET path: what a file is.
func statPath(_ context.Context, x *exchange.Exchange, r *http.Request, c *volume.Content) error {
	q := exchange.NewQuery(r)
	name := pathOf(q)
	if err := q.End(); err != nil {
		return err
	}
	e, err := c.Stat(name)
	return answerEntry(x, http.StatusOK, e, err)
}

// changeBody checks the body of PATCH path.
var changeBody = rule.Object(rule.Fields{"uid": rule.Integer(0, maxID), "gid": rule.Integer(0, maxID),
	"mode": rule.Integer(0, volume.MaxMode)})

// changePath serves PATCH path: a file gets another owner or mode.
func changePath(_ context.Context, x *exchange.Exchange, r *http.Request, c *volume.Content) error {
	q := exchange.NewQuery(r)
	name := pathOf(q)
	if err := q.End(); err != nil {
		return err
	}
	var body struct {
		UID  *uint32 `json:"uid"`
		GID  *uint32 `json:"gid"`
		Mode *uint32 `json:"mode"`
	}
	if err := x.Decode(r, changeBody, &body); err != nil {
		return err
	}
	e, err := c.Set(name, volume.Attributes(body))
	return answerEntry(x, http.StatusOK, e, err)
}

// removePath serves DELETE path.
func removePath(ctx context.Context, x *exchange.Exchange, r *http.Request, c *volume.Content) error {
	q := exchange.NewQuery(r)
	name := pathOf(q)
	if err := q.End(); err != nil {
		return err
	}
	if err := c.Remove(ctx, name); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// listDir serves GET dir.
func listDir(ctx context.Context, x *exchange.Exchange, r *http.Request, c *volume.Content) error {
	q := exchange.NewQuery(r)
	name, depth := pathOf(q), q.Integer("depth", 1, 0, volume.MaxDepth)
	if err := q.End(); err != nil {
		return err
	}
	entries, err := c.List(ctx, name, int(max(depth, 1)))
	if err != nil {
		return err
	}
	out := make([]volumeEntry, len(entries))
	for i, e := range entries {
		out[i] = entryOf(e)
	}
	return x.JSON(http.StatusOK, out)
}

// makeDir serves POST dir.
func makeDir(_ context.Context, x *exchange.Exchange, r *http.Request, c *volume.Content) error {
	q := exchange.NewQuery(r)
	name, a, force := pathOf(q), attributesOf(q), q.Boolean("force", false)
	if err := q.End(); err != nil {
		return err
	}
	e, err := c.Mkdir(name, a, force)
	return answerEntry(x, http.StatusCreated, e, err)
}

// readFile serves GET file: the bytes of a file.
func readFile(ctx context.Context, x *exchange.Exchange, r *http.Request, c *volume.Content) error {
	q := exchange.NewQuery(r)
	name := pathOf(q)
	if err := q.End(); err != nil {
		return err
	}
	f, err := c.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return x.Download(r, path.Base(name), -1, &endingFile{f, ctx})
}

// An endingFile is a file whose reads fail when a context ends.
type endingFile struct {
	io.ReadSeeker
	ctx context.Context
}

func (f *endingFile) Read(p []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.ReadSeeker.Read(p)
}

// writeFile serves PUT file: the body becomes the content of a file.
func writeFile(ctx context.Context, x *exchange.Exchange, r *http.Request, c *volume.Content) error {
	q := exchange.NewQuery(r)
	name, a, force := pathOf(q), attributesOf(q), q.Boolean("force", false)
	if err := q.End(); err != nil {
		return err
	}
	e, err := c.Write(ctx, name, a, force, x.Body(r, 0)) // the volume's size is the limit
	return answerEntry(x, http.StatusCreated, e, err)
}

// A volumeEntry describes a file of a volume.
type volumeEntry struct {
	Name   string      `json:"name"`
	Type   string      `json:"type"` // file, directory, symlink or unknown
	Path   string      `json:"path"` // absolute in the volume
	Size   int64       `json:"size"`
	Mode   fs.FileMode `json:"mode"` // permissions
	UID    uint32      `json:"uid"`
	GID    uint32      `json:"gid"`
	Atime  time.Time   `json:"atime"`
	Mtime  time.Time   `json:"mtime"`
	Ctime  time.Time   `json:"ctime"`
	Target string      `json:"target,omitempty"` // of a symlink
}

func entryOf(e *volume.Entry) volumeEntry {
	kind := "unknown"
	switch e.Mode.Type() {
	case 0:
		kind = "file"
	case fs.ModeDir:
		kind = "directory"
	case fs.ModeSymlink:
		kind = "symlink"
	}
	return volumeEntry{path.Base(e.Path), kind, e.Path, e.Size, e.Mode.Perm(), e.UID, e.GID, e.Accessed.UTC(),
		e.Modified.UTC(), e.Changed.UTC(), e.Target}
}

// answerEntry answers with a file, or returns the error.
func answerEntry(x *exchange.Exchange, status int, e *volume.Entry, err error) error {
	if err != nil {
		return err
	}
	return x.JSON(status, entryOf(e))
}
