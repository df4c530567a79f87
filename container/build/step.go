package build

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/rule"
)

// A Step is an instruction of a build.
type Step struct {
	Type      string   `json:"type"` // COPY, RUN, ENV, WORKDIR or USER
	Args      []string `json:"args"`
	FilesHash string   `json:"filesHash"`
	Force     bool     `json:"force"`
}

// String returns the step as a line of a Dockerfile.
func (s Step) String() string {
	args := s.Args
	if strings.EqualFold(s.Type, "RUN") {
		args = args[:1]
	}
	return strings.ToUpper(s.Type) + " " + strings.TrimSpace(strings.Join(args, " "))
}

var (
	variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	account  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?$`)
	mode     = regexp.MustCompile(`^[0-7]{1,5}$`)
)

// check checks the arguments of a step.
func (s Step) check(at string) error {
	fewest := map[string]int{"COPY": 2, "RUN": 1, "ENV": 2, "WORKDIR": 1, "USER": 1}[strings.ToUpper(s.Type)]
	switch {
	case fewest == 0:
		return berth.Invalid(at+".type",
			"Invalid '%s.type': '%s'. Supported values are: 'COPY', 'RUN', 'ENV', 'WORKDIR' and 'USER'.", at,
			rule.Clip(s.Type))
	case len(s.Args) < fewest:
		return berth.Invalid(at+".args", "Invalid '%s.args': %s has at least %d arguments.", at, s.Type, fewest)
	}
	for _, arg := range s.Args {
		if strings.ContainsRune(arg, 0) {
			return berth.Invalid(at+".args", "Invalid '%s.args': an argument has a zero byte.", at)
		}
	}
	arg := func(i int) string {
		if i < len(s.Args) {
			return s.Args[i]
		}
		return ""
	}
	user := ""
	switch strings.ToUpper(s.Type) {
	case "COPY":
		user = arg(2)
		if !filesHash.MatchString(s.FilesHash) {
			return berth.Invalid(at+".filesHash", "Invalid '%s.filesHash': expected 64 hexadecimal digits.", at)
		}
		if arg(3) != "" && !mode.MatchString(arg(3)) {
			return berth.Invalid(at+".args", "Invalid '%s.args': '%s' are not permissions.", at, rule.Clip(arg(3)))
		}
		if from := path.Clean(arg(0)); path.IsAbs(from) || from == ".." || strings.HasPrefix(from, "../") {
			return berth.Invalid(at+".args", "Invalid '%s.args': the source '%s' leaves the directory of the files.",
				at, rule.Clip(arg(0)))
		}
	case "RUN":
		user = arg(1)
	case "USER":
		user = arg(0)
	case "ENV":
		if len(s.Args)%2 != 0 {
			return berth.Invalid(at+".args", "Invalid '%s.args': expected names and values.", at)
		}
		for i := 0; i < len(s.Args); i += 2 {
			if !variable.MatchString(s.Args[i]) {
				return berth.Invalid(at+".args", "Invalid '%s.args': '%s' is not the name of a variable.", at,
					rule.Clip(s.Args[i]))
			}
		}
	}
	if user != "" && !account.MatchString(user) {
		return berth.Invalid(at+".args", "Invalid '%s.args': '%s' is not the name of a user.", at, rule.Clip(user))
	}
	return nil
}

// A stepError is a failure of a program in the sandbox.
type stepError struct{ what, why string }

func (e *stepError) Error() string { return fmt.Sprintf("failed to run %s: %s", e.what, e.why) }

// execute executes a step.
func (w *worker) execute(ctx context.Context, s Step) error {
	switch strings.ToUpper(s.Type) {
	case "RUN":
		user := w.state.User
		if len(s.Args) > 1 && s.Args[1] != "" {
			user = s.Args[1]
		}
		_, err := w.command(ctx, s.Args[0], user, w.state.Dir, true)
		return err
	case "ENV":
		return w.setEnv(ctx, s.Args)
	case "WORKDIR":
		return w.setDir(ctx, s.Args[0])
	case "USER":
		name, _, _ := strings.Cut(s.Args[0], ":")
		if _, err := w.command(ctx, "id -u "+quote(name)+" >/dev/null 2>&1 || useradd --create-home --shell "+quote(
			w.shell)+" "+quote(name), "root", "/", true); err != nil {
			return err
		}
		w.state.User = name
		return nil
	}
	return w.copy(ctx, s)
}

// setEnv sets variables. Values may refer to earlier ones.
func (w *worker) setEnv(ctx context.Context, args []string) error {
	for i := 0; i < len(args); i += 2 {
		name := args[i]
		value, err := expand(args[i+1], func(name string) (string, error) { return w.variable(ctx, name) })
		if err != nil {
			return err
		}
		env := w.state.Env[:0:0]
		for _, pair := range w.state.Env {
			if !strings.HasPrefix(pair, name+"=") {
				env = append(env, pair)
			}
		}
		w.state.Env = append(env, name+"="+value)
		if name == "PATH" {
			if err := w.setPath(ctx, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// variable returns a variable of the build, or of a login shell if the build has not set it.
func (w *worker) variable(ctx context.Context, name string) (string, error) {
	for _, pair := range w.state.Env {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value, nil
		}
	}
	return w.command(ctx, `printf %s "$`+name+`"`, w.state.User, "/", false)
}

// setPath makes login shells use the PATH of a build: /etc/profile replaces the one of their environment.
func (w *worker) setPath(ctx context.Context, value string) error {
	script := "mkdir -p /etc/profile.d && printf 'export PATH=%s\n' " + quote(quote(value)) +
		" >/etc/profile.d/template-path.sh"
	_, err := w.command(ctx, script, "root", "/", false)
	return err
}

// setDir makes a directory, owned by the user, the working directory of the next steps and of
// sandboxes.
func (w *worker) setDir(ctx context.Context, dir string) error {
	if !path.IsAbs(dir) {
		dir = path.Join(w.state.Dir, dir)
	}
	script := `t=` + quote(dir) + `
[ -d "$t" ] || { n="$t"; while [ ! -d "$(dirname "$n")" ]; do n=$(dirname "$n"); done; mkdir -p "$t" && chown -R ` + quote(w.state.User) + `: "$n"; } || exit
cd "$t" && pwd`
	out, err := w.command(ctx, script, "root", "/", false)
	if err != nil {
		return err
	}
	w.state.Dir = strings.TrimSpace(out)
	return nil
}

// quote quotes a text for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// copyScript copies uploaded files as COPY of a Dockerfile does: the content of a directory, or one
// file, to the target. It runs as root.
const copyScript = `set -e
mkdir -p "$UNPACK"
tar -xf "$ARCHIVE" -C "$UNPACK" --no-same-owner
case "$TARGET" in /*) ;; *) TARGET="$PWD/$TARGET" ;; esac
from="$UNPACK/$SOURCE"
if [ ! -e "$from" ] && [ ! -L "$from" ]; then echo "no such file: $SOURCE" >&2; exit 1; fi
chown -hR "$OWNER" "$from"
if [ -n "$MODE" ] && [ ! -L "$from" ]; then chmod -R "$MODE" "$from"; fi
if [ -d "$from" ] && [ ! -L "$from" ]; then
	mkdir -p "$TARGET"
	cp -a "$from/." "$TARGET/"
else
	case "$TARGET" in */) mkdir -p "$TARGET" ;; *) mkdir -p "$(dirname "$TARGET")" ;; esac
	cp -a "$from" "$TARGET"
fi
chmod -R u+rwx "$UNPACK"
rm -rf "$UNPACK" "$ARCHIVE"
`

// copy executes a COPY step.
func (w *worker) copy(ctx context.Context, s Step) error {
	d, p := w.service, w.caller.Project
	known, err := d.cachedResult(ctx, p, cacheKey("files", s.FilesHash))
	if err != nil {
		return err
	}
	if known == nil {
		return &stepError{s.String(), "its files were not uploaded"}
	}
	content, _, err := d.Files.Open(ctx, p, known.File)
	if err != nil {
		return err
	}
	defer content.Close()
	archive := "/var/tmp/.berth-copy-" + s.FilesHash[:16]
	if err := w.client.WriteFile(ctx, "", archive+".tar", "root", content); err != nil {
		return &stepError{s.String(), err.Error()}
	}
	owner := w.state.User
	if len(s.Args) > 2 && s.Args[2] != "" {
		owner = s.Args[2]
	}
	if !strings.Contains(owner, ":") {
		owner += ":"
	}
	permissions := ""
	if len(s.Args) > 3 {
		permissions = s.Args[3]
	}
	req := w.process(copyScript, "root", w.state.Dir)
	for name, value := range map[string]string{"ARCHIVE": archive + ".tar", "UNPACK": archive,
		"SOURCE": withoutGlob(s.Args[0]), "TARGET": s.Args[1], "OWNER": owner, "MODE": permissions} {
		req.Env[name] = value
	}
	_, err = w.wait(ctx, req, s.String(), true)
	return err
}

// withoutGlob returns the directory before the first part of a path with a pattern: the client has
// matched it.
func withoutGlob(source string) string {
	parts := strings.Split(path.Clean(source), "/")
	for i, part := range parts {
		if strings.ContainsAny(part, "*?[{") {
			parts = parts[:i]
			break
		}
	}
	if len(parts) == 0 {
		return "."
	}
	return strings.Join(parts, "/")
}

// process returns the request for a command.
func (w *worker) process(command, user, dir string) guest.ProcessRequest {
	env := map[string]string{}
	for _, pair := range w.state.Env {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return guest.ProcessRequest{User: user, Cmd: w.shell, Args: []string{"-l", "-c", command}, Env: env, Dir: dir}
}

// command runs a command and returns its standard output. If logged, its output is in the log.
func (w *worker) command(ctx context.Context, command, user, dir string, logged bool) (string, error) {
	return w.wait(ctx, w.process(command, user, dir), "command '"+rule.Clip(command)+"'", logged)
}

// maxOutput bounds the output of a command that is not logged.
const maxOutput = 64 << 10

// wait runs a process to its end. Without exit status 0 it returns a *stepError.
func (w *worker) wait(ctx context.Context, req guest.ProcessRequest, what string, logged bool) (string, error) {
	p, err := w.client.Start(ctx, req)
	if err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", &stepError{what, "command failed: " + err.Error()} // in the words of E2B
	}
	var out strings.Builder
	var lines, errLines lineWriter
	for ev, err := range p.Events() {
		if err != nil {
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
			return "", &stepError{what, err.Error()}
		}
		if logged {
			lines.write(ev.Stdout, ev.Ended, func(text string) { w.log("info", text) })
			errLines.write(ev.Stderr, ev.Ended, func(text string) { w.log("info", text) })
		} else if out.Len() < maxOutput {
			out.Write(ev.Stdout)
		}
		if ev.Ended && ev.ExitCode != 0 {
			return "", &stepError{what, ev.Status}
		}
	}
	return out.String(), nil
}

// A lineWriter joins pieces of output to whole lines.
type lineWriter struct{ rest string }

// write passes on the lines that are complete with a piece, and at the end the rest.
func (l *lineWriter) write(piece []byte, end bool, to func(string)) {
	text := l.rest + string(piece)
	at := strings.LastIndexByte(text, '\n') + 1
	if end || len(text) > maxLogLine {
		at = len(text)
	}
	l.rest = text[at:]
	if at > 0 {
		to(text[:at])
	}
}
