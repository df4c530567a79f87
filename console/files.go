package console

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// maxShown is the number of entries of one directory that the page shows.
const maxShown = 500

// A filesPage is the page of a container's files.
type filesPage struct {
	Tab     tab
	Form    formToken
	WorkDir string   // where commands start
	Path    string   // of the directory or file that is open
	Dir     string   // the directory that is open, or the file's
	Above   []string // the directories above Dir, from the tree's top
	Tree    []treeEntry
	Preview *preview // of the open file; nil for a directory
}

// Files returns the path of the page.
func (p filesPage) Files() string { return p.Tab.Path() + "/files" }

// A treeEntry is an entry of the tree, with the entries below it if it is above the open file.
type treeEntry struct {
	guest.Entry
	Open    bool
	Current bool // it is what the page shows
	Below   []treeEntry
	More    int // entries that are not shown
}

// Name returns the last element of the entry's path.
func (b treeEntry) Name() string { return path.Base(b.Path) }

// show serves GET /console/containers/{container}/files: a tree of directories, and a preview
// of the file in the query's path.
func (p *filesPage) show(v *visit) error {
	c, err := readContainer(v)
	if err != nil {
		return err
	}
	*p = filesPage{Tab: tab{c, "files", v.formToken()}, Form: v.formToken()}
	if c.Status != berth.ContainerRunning {
		return v.show(http.StatusOK, "files", "Files", p)
	}
	client := guestOf(v, c.ID)
	if p.WorkDir, err = client.WorkDir(v.r.Context()); err != nil {
		return fileFailure(err)
	}
	if p.Path, err = pathOf(v.r.URL.Query().Get("path"), p.WorkDir); err != nil {
		return err
	}
	at, err := client.Stat(v.r.Context(), p.Path)
	if err != nil {
		return fileFailure(err)
	}
	p.Dir = p.Path
	if !at.Dir {
		p.Dir = path.Dir(p.Path)
		if p.Preview, err = newPreview(v, client, at); err != nil {
			return fileFailure(err)
		}
	}
	top := "/"
	if within(p.WorkDir, p.Dir) {
		top = p.WorkDir
	}
	for dir := p.Dir; dir != top; {
		dir = path.Dir(dir)
		p.Above = append(p.Above, dir)
	}
	slices.Reverse(p.Above)
	all, err := readTree(v, client, top, p.Dir, p.Path)
	if err != nil {
		return fileFailure(err)
	}
	p.Tree = []treeEntry{all}
	allowFrames(v)
	return v.show(http.StatusOK, "files", path.Base(p.Path), p)
}

// readTree lists a directory, and those below it that lead to the open one. current is what the page
// shows.
func readTree(v *visit, client *guest.Client, dir, open, current string) (treeEntry, error) {
	b := treeEntry{Entry: guest.Entry{Path: dir, Dir: true}, Open: true, Current: dir == current}
	entries, err := client.List(v.r.Context(), dir, 1)
	if err != nil {
		return b, err
	}
	slices.SortFunc(entries, func(a, b guest.Entry) int {
		if a.Dir != b.Dir {
			return map[bool]int{true: -1, false: 1}[a.Dir] // directories first
		}
		return cmp.Compare(a.Path, b.Path)
	})
	for i, e := range entries {
		leads := within(e.Path, open)
		if i >= maxShown && !leads && e.Path != current {
			b.More++
			continue
		}
		below := treeEntry{Entry: e, Current: e.Path == current}
		if leads {
			if below, err = readTree(v, client, e.Path, open, current); err != nil {
				return b, err
			}
			below.Link = e.Link
		}
		b.Below = append(b.Below, below)
	}
	return b, nil
}

// within reports whether a clean path is dir or below it.
func within(dir, at string) bool {
	return at == dir || strings.HasPrefix(at, strings.TrimSuffix(dir, "/")+"/")
}

// pathOf returns a path of the query or a form: absolute and clean, in UTF-8 without control
// characters. An empty one is the default.
func pathOf(asked, otherwise string) (string, error) {
	if asked == "" {
		return otherwise, nil
	}
	at := path.Clean("/" + asked)
	if at != "/" && !guest.Below("/", at) {
		return "", &failure{http.StatusBadRequest, "The path has characters that cannot be shown, or is too long."}
	}
	return at, nil
}

// fileFailure returns the failure that the user sees for an error of a file.
func fileFailure(err error) error {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	for cause, status := range map[error]int{fs.ErrNotExist: http.StatusNotFound,
		fs.ErrPermission: http.StatusForbidden, fs.ErrExist: http.StatusConflict,
		fs.ErrInvalid: http.StatusBadRequest, guest.ErrNoSpace: http.StatusInsufficientStorage} {
		if errors.Is(err, cause) {
			return &failure{status, "The container answered: " + strings.TrimPrefix(err.Error(), cause.Error()+": ") +
				"."}
		}
	}
	return err
}

// change serves POST /console/containers/{container}/files: it saves files in a directory,
// makes a directory, or deletes a file or a tree, as the form says.
func (*filesPage) change(v *visit) error {
	in := v.form.fields
	id := berth.ContainerID(v.r.PathValue("container"))
	client := guestOf(v, id)
	work, err := client.WorkDir(v.r.Context())
	if err != nil {
		return fileFailure(err)
	}
	at, err := pathOf(in.Get("path"), work)
	if err != nil {
		return err
	}
	switch in.Get("do") {
	case "upload":
		err = saveFiles(v, client, id, work, at)
	case "save":
		err = saveText(v, client, at)
	case "directory":
		name := strings.TrimSpace(in.Get("name"))
		var to string
		if to, err = pathOf(at+"/"+name, ""); err == nil && name != "" {
			at, err = to, client.MakeDir(v.r.Context(), to)
		}
	case "delete":
		if at == "/" || strings.HasPrefix(work+"/", at+"/") { // the working directory, or one above it
			return &failure{http.StatusBadRequest, "This directory stays."}
		}
		err, at = client.Remove(v.r.Context(), "", strings.TrimPrefix(at, "/")), path.Dir(at)
	default:
		return &failure{http.StatusBadRequest, "The form is incomplete."}
	}
	if err != nil {
		return fileFailure(err)
	}
	return v.redirect("/console/containers/" + url.PathEscape(string(id)) + "/files?" +
		url.Values{"path": {at}}.Encode())
}

// saveFiles saves the files of the form in a directory, as they come.
func saveFiles(v *visit, client *guest.Client, id berth.ContainerID, work, dir string) error {
	if v.form.next == nil {
		return &failure{http.StatusBadRequest, "The form has no files. Go back and choose some."}
	}
	for v.form.next != nil {
		file := v.form.next
		to, err := pathOf(dir+"/"+path.Base(file.FileName()), "")
		if err != nil {
			return err
		}
		if err := saveFile(v, client, id, work, to, file); err != nil {
			return cmp.Or(file.err, err)
		}
		if err := v.form.advance(); err != nil {
			return err
		}
	}
	return nil
}

// saveText replaces the content of a text file, unless it has changed since the page has shown it.
func saveText(v *visit, client *guest.Client, at string) error {
	now, err := client.Stat(v.r.Context(), at)
	if err != nil {
		return fmt.Errorf("stat file: %w", err)
	}
	in := v.form.fields
	if version := versionOf(now); !now.Regular || version != in.Get("version") {
		return &failure{http.StatusConflict, "The file has changed since this page was loaded. Go back, copy your text, and " +
			"reload the page."}
	}
	text := v.text("text")
	if in.Get("ends") == "crlf" {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	if err := client.WriteFile(v.r.Context(), "", at, "", strings.NewReader(text)); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

// versionOf returns what changes with the content of a file.
func versionOf(at guest.Entry) string { return fmt.Sprintf("%d-%d", at.Modified.UnixNano(), at.Size) }

// saveFile saves one file. The API lists those in the working directory as the user's.
func saveFile(v *visit, client *guest.Client, id berth.ContainerID, work, to string, file io.Reader) error {
	if within(work, to) && work == berth.WorkDir {
		return upload(v, "/v1/containers/"+url.PathEscape(string(id))+"/files", strings.TrimPrefix(to, work+"/"), nil,
			file, &struct{}{})
	}
	if err := client.WriteFile(v.r.Context(), "", to, "", file); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

// download serves GET /console/containers/{container}/files/download: a file, or with a format
// the archive of a directory.
func (*filesPage) download(v *visit) error {
	query := v.r.URL.Query()
	at, err := pathOf(query.Get("path"), "/")
	if err != nil {
		return err
	}
	base := "/v1/containers/" + url.PathEscape(v.r.PathValue("container"))
	name := path.Base(at)
	from := base + "/guest/files?" + url.Values{"path": {at}}.Encode()
	if format := query.Get("format"); format != "" {
		from = base + "/archive?" + url.Values{"path": {at}, "format": {format}}.Encode()
		name += "." + format
	}
	return passFile(v, from, "application/octet-stream", "attachment", name)
}

// passFile answers with a file of the API, of a type that the console chooses.
func passFile(v *visit, from, kind, disposition, name string) error {
	header := http.Header{}
	if r := v.r.Header.Get("Range"); r != "" {
		header.Set("Range", r)
	}
	resp, err := v.do(v.r.Context(), http.MethodGet, from, header, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		var answer struct {
			Message string
			Error   struct{ Message string }
		}
		decode(resp.Body, &answer)
		return &failure{resp.StatusCode, cmp.Or(answer.Error.Message, answer.Message, resp.Status)}
	}
	out := v.w.Header()
	for _, name := range []string{"Content-Length", "Content-Range", "Accept-Ranges"} {
		if value := resp.Header.Get(name); value != "" {
			out.Set(name, value)
		}
	}
	out.Set("Content-Type", kind)
	out.Set("Content-Disposition", dispositionOf(disposition, name))
	v.w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(v.w, resp.Body); err != nil {
		panic(http.ErrAbortHandler) // otherwise the browser takes a part for the whole
	}
	return nil
}
