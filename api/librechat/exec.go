package librechat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/bash"
	"github.com/berth-run/berth/guest"
)

// Limits of a run.
const (
	runTime   = 5 * time.Minute
	maxArgs   = 100
	maxInputs = 100 // files
)

// A language is how code is run: $d is the directory of the code, and "$@" are its arguments.
type language struct{ file, needs, run string }

// languages are those that clients name. needs is the program without which there is no run.
var languages = map[string]language{
	"py": {"main.py", "python3", `exec python3 "$d/main.py" "$@"`},
	"js": {"main.mjs", "node", `exec node "$d/main.mjs" "$@"`},
	"ts": {"main.mts", "node", `node --experimental-strip-types -e 0 2>/dev/null ||
	{ echo 'ts needs Node.js 22.6 or newer in the template of the container.' >&2; exit 127; }
exec node --no-warnings --experimental-strip-types "$d/main.mts" "$@"`},
	"bash": {"main.sh", "bash", `exec bash "$d/main.sh" "$@"`},
	"c":    {"main.c", "gcc", `gcc -o "$d/main" "$d/main.c" -lm && exec "$d/main" "$@"`},
	"cpp":  {"main.cpp", "g++", `g++ -o "$d/main" "$d/main.cpp" && exec "$d/main" "$@"`},
	"java": {"Main.java", "java", `exec java "$d/Main.java" "$@"`},
	"php":  {"main.php", "php", `exec php "$d/main.php" "$@"`},
	"rs":   {"main.rs", "rustc", `rustc -o "$d/main" "$d/main.rs" && exec "$d/main" "$@"`},
	"go":   {"main.go", "go", `exec go run "$d/main.go" "$@"`},
	"d":    {"main.d", "dmd", `dmd -of="$d/main" "$d/main.d" && exec "$d/main" "$@"`},
	"f90":  {"main.f90", "gfortran", `gfortran -o "$d/main" "$d/main.f90" && exec "$d/main" "$@"`},
	"r":    {"main.R", "Rscript", `exec Rscript "$d/main.R" "$@"`},
}

// An input is a file of a session that a run has.
type input struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Session string `json:"session_id"`
	Storage string `json:"storage_session_id"`
}

// source returns the session of a file.
func (i input) source() string {
	if i.Storage != "" {
		return i.Storage
	}
	return i.Session
}

// A program is the body of a request. Fields of other clients have no effect.
type program struct {
	Lang    string   `json:"lang"`
	Code    string   `json:"code"`
	Args    []string `json:"args"`
	User    string   `json:"user_id"`
	Session string   `json:"session_id"`
	Files   []input  `json:"files"`
}

// check returns the error of a program that cannot run.
func (p *program) check() error {
	if _, ok := languages[p.Lang]; !ok {
		return berth.Invalid("lang", "Unknown language. Expected one of py, js, ts, bash, c, cpp, java, php, rs, go, d, "+
			"f90 and r.")
	}
	if p.Code == "" {
		return berth.Invalid("code", "Missing required parameter: 'code'.")
	}
	if len(p.Args) > maxArgs || slices.ContainsFunc(p.Args, func(a string) bool { return strings.ContainsRune(a, 0) }) {
		return berth.Invalid("args", "There are more than %d arguments, or one has a NUL byte.", maxArgs)
	}
	if len(p.Files) > maxInputs {
		return berth.Invalid("files", "There are more than %d files.", maxInputs)
	}
	return nil
}

// execute serves POST /exec.
func (d *Door) execute(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	raw, err := x.ReadBody(r, d.MaxBody)
	if err != nil {
		return err
	}
	if _, err := exchange.ScanJSON(raw); err != nil {
		return err
	}
	var p program
	if err := json.Unmarshal(raw, &p); err != nil {
		return berth.Invalid("", "The body does not have the form of this request: %v.", err)
	}
	if err := p.check(); err != nil {
		return err
	}
	name, err := user(r, p.User)
	if err != nil {
		return err
	}
	s, id, fresh, err := d.choose(r, c, &p, name)
	if err != nil {
		return err
	}
	if raw, err = withSession(raw, s); err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	r.Header.Set("Content-Length", strconv.Itoa(len(raw)))
	v, release, err := d.open(x, r, c, s, id)
	if v == nil || err != nil {
		return err
	}
	defer release()
	out, err := v.work(c, p, name)
	if fresh && (err != nil || len(out.Files) == 0 && len(p.Files) == 0) {
		if err := d.Remove(r, c.Project, id); err != nil {
			d.Log.Warn("failed to delete a container without files; it expires", "container", id, "err", err)
		}
	}
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, out)
}

// work runs a program with its files.
func (v *visit) work(c berth.Caller, p program, user string) (*result, error) {
	if err := v.take(c, p.Files, user); err != nil {
		return nil, err
	}
	return v.run(p)
}

// withSession sets the session of a request, for the server to which it goes.
func withSession(raw []byte, s sessionID) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, berth.Invalid("", "The body is not an object.")
	}
	fields["session_id"], _ = json.Marshal(s)
	return json.Marshal(fields)
}

// choose returns the session in which a program runs: the first that it names and in which the user's code may run, or
// a fresh one.
func (d *Door) choose(r *http.Request, c berth.Caller, p *program, user string) (s sessionID, id berth.ContainerID,
	fresh bool, err error) {
	named := []string{p.Session}
	for _, f := range p.Files {
		named = append(named, f.source())
	}
	for _, one := range named {
		if !valid(one) || !sessionID(one).own(user) {
			continue
		}
		id, err := d.Sessions.Existing(r.Context(), c.Project, sessionID(one).name())
		if id != "" || err != nil {
			return sessionID(one), id, false, err
		}
	}
	s = newSession(runs, user)
	id, err = d.create(r, c, s)
	return s, id, true, err
}

// take copies files of other sessions into this one, unless it has them.
func (v *visit) take(c berth.Caller, inputs []input, user string) error {
	for _, in := range inputs {
		from := in.source()
		if from == string(v.session) {
			continue
		}
		missing := berth.Errorf(berth.CodeNotFound, "The file %q is not there any more. Upload it again.", in.Name)
		if !valid(from) || !sessionID(from).of(user) {
			return missing
		}
		id, err := v.door.Sessions.Existing(v.r.Context(), c.Project, sessionID(from).name())
		if err != nil {
			return err
		}
		if id == "" {
			return missing
		}
		if err := v.copy(c, sessionID(from), id, in, missing); err != nil {
			return err
		}
	}
	return nil
}

// copy copies a file of another session.
func (v *visit) copy(c berth.Caller, from sessionID, id berth.ContainerID, in input, missing error) error {
	client, release, err := v.door.Containers.Access().Guest(v.r.Context(), c, id)
	if err != nil {
		return err
	}
	defer release()
	other := &visit{door: v.door, x: v.x, r: v.r, session: from, client: client}
	if other.home, err = client.WorkDir(v.r.Context()); err != nil {
		return v.guestError(err)
	}
	all, err := other.files()
	if err != nil {
		return err
	}
	e, ok := all[in.ID]
	if !ok {
		return missing
	}
	name := cleanName(in.Name)
	if name == "" {
		name = other.name(e)
	}
	body, _, err := client.ReadFile(v.r.Context(), other.home, other.name(e), "")
	if err != nil {
		return v.guestError(err)
	}
	defer body.Close()
	if err := v.client.WriteFile(v.r.Context(), v.home, name, "", body); err != nil {
		return v.guestError(err)
	}
	return nil
}

// A result is the answer of a run.
type result struct {
	Session sessionID `json:"session_id"`
	Stdout  string    `json:"stdout"`
	Stderr  string    `json:"stderr"`
	Files   []made    `json:"files"`
}

// A made file is one that a run made or changed.
type made struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Session sessionID `json:"session_id"`
	Storage sessionID `json:"storage_session_id"`
}

// run runs a program to its end.
func (v *visit) run(p program) (*result, error) {
	before, err := v.files()
	if err != nil {
		return nil, err
	}
	l, dir := languages[p.Lang], "/tmp/code-"+strings.ToLower(digest(16, berth.NewID("")))
	if err := v.client.WriteFile(v.r.Context(), "", path.Join(dir, l.file), "", strings.NewReader(p.Code)); err != nil {
		return nil, v.guestError(err)
	}
	defer func() { _ = v.client.Remove(v.r.Context(), "/tmp", path.Base(dir)) }() // what is left is in /tmp
	script := fmt.Sprintf("d=$0\ncommand -v %[1]s >/dev/null || { echo 'The template of the container has no %[1]s, "+
		"which %[2]s needs.' >&2; exit 127; }\n%[3]s", l.needs, p.Lang, l.run)
	out, err := bash.Execute(v.r.Context(), v.client, guest.ProcessRequest{Cmd: "/bin/sh", Dir: v.home,
		Args: append([]string{"-c", script, dir}, p.Args...)}, runTime, v.door.MaxOutput)
	r := &result{Session: v.session, Files: []made{}}
	switch {
	case errors.Is(err, bash.ErrTimeout):
		r.Stderr = fmt.Sprintf("The code ran longer than %v and was stopped.\n", runTime)
	case err != nil:
		return nil, v.guestError(err)
	default:
		r.Stdout, r.Stderr = v.bounded(out.Stdout), v.bounded(out.Stderr)
		if out.ExitCode != 0 && r.Stderr == "" {
			r.Stderr = fmt.Sprintf("The code ended with exit code %d.\n", out.ExitCode)
		}
	}
	after, err := v.files()
	if err != nil {
		return nil, err
	}
	for id, e := range after {
		was, ok := before[id]
		if (!ok || was.Size != e.Size || !was.Modified.Equal(e.Modified)) && len(r.Files) < maxFiles {
			r.Files = append(r.Files, made{id, v.name(e), v.session, v.session})
		}
	}
	slices.SortFunc(r.Files, func(a, b made) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

// bounded returns an output as text, and says if it was cut.
func (v *visit) bounded(s string) string {
	cut := len(s) >= v.door.MaxOutput
	if s = strings.ToValidUTF8(s, "\ufffd"); cut {
		s += fmt.Sprintf("\n[Output after %d bytes is left out.]\n", v.door.MaxOutput)
	}
	return s
}
