package openterminal

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
)

// files serves requests for the files of a user.
type files struct{ *visit }

// inFiles returns the handler of a request for files.
func inFiles(serve func(files) error) func(*visit) error {
	return func(v *visit) error { return serve(files{v}) }
}

// directory serves GET /files/cwd.
func (v files) directory() error {
	return v.x.JSON(http.StatusOK, map[string]any{"cwd": v.cwd(), "home": v.home,
		"root": map[string]string{"path": v.home, "label": "Home"}})
}

// setDirectory serves POST /files/cwd.
func (v files) setDirectory() error {
	path, err := v.pathOfBody(false)
	if err != nil {
		return err
	}
	at, err := v.examine(path)
	switch {
	case err != nil:
		return err
	case !at.Directory:
		return refused(http.StatusNotFound, "Directory not found")
	}
	v.door.Processes.SetDir(v.owner, path)
	return v.x.JSON(http.StatusOK, map[string]string{"cwd": path})
}

// A file is what a path names.
type file struct {
	Exists    bool   `json:"exists"`
	Regular   bool   `json:"file"`
	Directory bool   `json:"directory"`
	Size      int64  `json:"size"`
	Type      string `json:"type"` // media type, by the name
}

var mediaType = regexp.MustCompile(`^[a-z0-9.+-]{1,64}/[a-zA-Z0-9.+_-]{1,96}$`)

// examine looks at a file.
func (v files) examine(path string) (f file, err error) {
	raw, err := v.ask(task{"do": "examine", "path": path})
	if err != nil {
		return f, err
	}
	return f, f.decode(raw)
}

func (f *file) decode(raw json.RawMessage) error {
	if err := json.Unmarshal(raw, f); err != nil {
		return berth.Errorf(berth.CodeUnavailable, "The files of the container could not be used.")
	}
	if !mediaType.MatchString(f.Type) {
		f.Type = "application/octet-stream"
	}
	return nil
}

// queryPath returns the path in the parameter "path". Routes of the file browser do not use the session's directory.
func (v files) queryPath(inSession bool) (string, error) {
	q := parametersOf(v.r)
	name := q.required("path")
	return v.resolve(name, inSession), q.end()
}

// pathOfBody returns the path in a body.
func (v files) pathOfBody(inSession bool) (string, error) {
	var body struct {
		Path string `json:"path"`
	}
	err := v.decode(&body, "path")
	return v.resolve(body.Path, inSession), err
}

func (v files) resolve(name string, inSession bool) string {
	if !inSession && !strings.HasPrefix(name, "/") {
		name = v.home + "/" + name
	}
	return v.path(name)
}

// list serves GET /files/list.
func (v files) list() error {
	return v.do(task{"do": "list", "path": v.path(parametersOf(v.r).text("directory", "."))})
}

// read serves GET /files/read: text as JSON, images as such.
func (v files) read() error {
	q := parametersOf(v.r)
	path := v.path(q.required("path"))
	first, last := q.integer("start_line", 1, 1, 1<<31-1), q.integer("end_line", 0, 1, 1<<31-1)
	if err := q.end(); err != nil {
		return err
	}
	t := task{"do": "read", "path": path, "start_line": first}
	if last > 0 {
		t["end_line"] = last
	}
	raw, err := v.ask(t)
	if err != nil {
		return err
	}
	var found struct{ Binary json.RawMessage }
	if json.Unmarshal(raw, &found) != nil || found.Binary == nil {
		return v.x.JSON(http.StatusOK, raw)
	}
	var f file
	if err := f.decode(found.Binary); err != nil {
		return err
	}
	if !strings.HasPrefix(f.Type, "image/") {
		return refused(http.StatusUnsupportedMediaType, "Unsupported binary file type: "+f.Type+" ("+
			strconv.FormatInt(f.Size, 10)+" bytes)")
	}
	return v.sendFile(path, f)
}

// display serves GET /files/display: a client that sees the answer shows the file to its user.
func (v files) display() error {
	path, err := v.queryPath(true)
	if err != nil {
		return err
	}
	at, err := v.examine(path)
	if err != nil {
		return err
	}
	return v.x.JSON(http.StatusOK, map[string]any{"path": path, "exists": at.Regular})
}

// write serves POST /files/write.
func (v files) write() error {
	var body struct {
		Path    string `json:"path"`
		Content string `json:"content"`
	}
	if err := v.decode(&body, "path", "content"); err != nil {
		return err
	}
	return v.do(task{"do": "write", "path": v.path(body.Path), "content": body.Content})
}

// A replacement is a change of a text.
type replacement struct {
	Target      string `json:"target"`
	Replacement string `json:"replacement"`
	First       *int   `json:"start_line"`
	Last        *int   `json:"end_line"`
	All         bool   `json:"allow_multiple"`
}

// replace serves POST /files/replace.
func (v files) replace() error {
	var body struct {
		Path         string        `json:"path"`
		Replacements []replacement `json:"replacements"`
	}
	if err := v.decode(&body, "path", "replacements"); err != nil {
		return err
	}
	for i, r := range body.Replacements {
		for name, line := range map[string]*int{"start_line": r.First, "end_line": r.Last} {
			if line != nil && *line < 1 {
				return faults{{"greater_than_equal", []any{"body", "replacements", i, name},
					"Input should be greater than or equal to 1", *line}}
			}
		}
	}
	return v.do(task{"do": "replace", "path": v.path(body.Path), "replacements": body.Replacements})
}

// mkdir serves POST /files/mkdir.
func (v files) mkdir() error {
	path, err := v.pathOfBody(false)
	if err != nil {
		return err
	}
	return v.do(task{"do": "mkdir", "path": path})
}

// delete serves DELETE /files/delete.
func (v files) delete() error {
	path, err := v.queryPath(false)
	if err != nil {
		return err
	}
	if path == "/" || path == v.home {
		return refused(http.StatusBadRequest, "The home directory cannot be deleted")
	}
	return v.do(task{"do": "delete", "path": path})
}

// move serves POST /files/move.
func (v files) move() error {
	var body struct {
		Source      string `json:"source"`
		Destination string `json:"destination"`
	}
	if err := v.decode(&body, "source", "destination"); err != nil {
		return err
	}
	return v.do(task{"do": "move", "source": v.resolve(body.Source, false),
		"destination": v.resolve(body.Destination, false)})
}

// compare serves POST /files/compare.
func (v files) compare() error {
	var body struct {
		Original         string `json:"original"`
		Revised          string `json:"revised"`
		IgnoreWhitespace bool   `json:"ignore_whitespace"`
	}
	if err := v.decode(&body, "original", "revised"); err != nil {
		return err
	}
	return v.do(task{"do": "compare", "original": v.path(body.Original), "revised": v.path(body.Revised),
		"ignore_whitespace": body.IgnoreWhitespace})
}

// grep serves GET /files/grep.
func (v files) grep() error {
	q := parametersOf(v.r)
	t := task{"do": "grep", "query": q.required("query"), "path": v.path(q.text("path", ".")),
		"regex": q.boolean("regex", true), "case_insensitive": q.boolean("case_insensitive", false),
		"include": q.list("include"), "match_per_line": q.boolean("match_per_line", true),
		"max_results": q.integer("max_results", 50, 1, 500)}
	if err := q.end(); err != nil {
		return err
	}
	return v.do(t)
}

// glob serves GET /files/glob.
func (v files) glob() error {
	q := parametersOf(v.r)
	t := task{"do": "glob", "pattern": q.required("pattern"), "path": v.path(q.text("path", ".")),
		"exclude": q.list("exclude"), "type": q.kind(), "max_results": q.integer("max_results", 50, 1, 500)}
	if err := q.end(); err != nil {
		return err
	}
	return v.do(t)
}

// search serves GET /files/search.
func (v files) search() error {
	q := parametersOf(v.r)
	t := task{"do": "search", "query": q.text("query", ""), "path": v.path(q.text("path", ".")), "type": q.kind(),
		"limit": q.integer("limit", 20, 1, 100), "show_hidden": q.boolean("show_hidden", false)}
	if err := q.end(); err != nil {
		return err
	}
	return v.do(t)
}

// matches serves GET /files/matches.
func (v files) matches() error {
	q := parametersOf(v.r)
	t := task{"do": "matches", "query": q.required("query"), "path": v.path(q.text("path", ".")),
		"offset": q.integer("offset", 0, 0, 1<<31-1), "limit": q.integer("limit", 100, 1, 100),
		"show_hidden": q.boolean("show_hidden", false)}
	if err := q.end(); err != nil {
		return err
	}
	return v.do(t)
}

// skills serves GET /skills: those in the user's files.
func (v files) skills() error { return v.do(task{"do": "skills", "home": v.home}) }

// readSkill serves GET /skills/read.
func (v files) readSkill() error {
	q := parametersOf(v.r)
	name := q.required("name")
	if err := q.end(); err != nil {
		return err
	}
	return v.do(task{"do": "read_skill", "home": v.home, "name": name})
}
