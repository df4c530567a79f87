package swerex

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/bash"
	"github.com/berth-run/berth/guest"
)

// argv is a command: a list, or one text.
type argv []string

func (a *argv) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*a = argv{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(a))
}

func (a argv) String() string { return strings.Join(a, " ") }

// text returns output as text: bytes outside UTF-8 become escapes, as in SWE-ReX.
func text(s string) string { t, _ := decoded(s, "utf-8", "backslashreplace"); return t }

// decoded returns the text of bytes in an encoding, with an error handler of Python. ok is false if bytes do not fit.
func decoded(s, encoding, onError string) (t string, ok bool) {
	switch strings.ToLower(strings.ReplaceAll(encoding, "_", "-")) {
	case "latin-1", "latin1", "iso-8859-1":
		var b strings.Builder
		for i := range len(s) {
			b.WriteRune(rune(s[i]))
		}
		return b.String(), true
	case "", "utf-8", "utf8", "ascii", "us-ascii":
	default:
		return "", false
	}
	if utf8.ValidString(s) {
		return s, true
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r != utf8.RuneError || n > 1:
			b.WriteString(s[:n])
		case onError == "replace":
			b.WriteRune(utf8.RuneError)
		case onError == "backslashreplace":
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case onError != "ignore":
			return "", false
		}
		s = s[n:]
	}
	return b.String(), true
}

// absolute returns the path of an argument; relative ones are below the directory in which commands start.
func (v *visit) absolute(name string) (string, error) {
	if path.IsAbs(name) {
		return path.Clean(name), nil
	}
	dir, err := v.box.Guest.WorkDir(v.r.Context())
	if err != nil {
		return "", v.thrownBy(err, "")
	}
	return path.Join(dir, name), nil
}

// maxFile is the size of a file that an answer can have.
const maxFile = 64 << 20

// readFile serves POST /read_file.
func (v *visit) readFile() error {
	var body struct {
		Path     string `json:"path"`
		Encoding string `json:"encoding"`
		Errors   string `json:"errors"`
	}
	if err := v.decode(&body); err != nil {
		return err
	}
	name, err := v.absolute(body.Path)
	if err != nil {
		return err
	}
	if at, err := v.box.Guest.Stat(v.r.Context(), name); err == nil && at.Dir {
		return builtin("IsADirectoryError", "Is a directory: "+body.Path)
	}
	in, _, err := v.box.Guest.ReadFile(v.r.Context(), "", name, "")
	if err != nil {
		return v.thrownBy(err, "")
	}
	defer in.Close()
	raw, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	switch {
	case err != nil:
		return v.thrownBy(err, "")
	case len(raw) > maxFile:
		return builtin("OSError", fmt.Sprintf("The file is larger than %d bytes", maxFile))
	}
	content, ok := decoded(string(raw), body.Encoding, body.Errors)
	if !ok {
		return builtin("ValueError", fmt.Sprintf("The file is not text in %q", body.Encoding))
	}
	return v.answer(map[string]string{"content": content})
}

// writeFile serves POST /write_file.
func (v *visit) writeFile() error {
	var body struct {
		Path    string `json:"path"`
		Content string `json:"content"`
	}
	if err := v.decode(&body); err != nil {
		return err
	}
	return v.write(body.Path, strings.NewReader(body.Content))
}

func (v *visit) write(name string, content io.Reader) error {
	if name == "" {
		return builtin("ValueError", "The path is empty")
	}
	at, err := v.absolute(name)
	if err != nil {
		return err
	}
	if st, err := v.box.Guest.Stat(v.r.Context(), at); err == nil && st.Dir {
		return builtin("IsADirectoryError", "Is a directory: "+name)
	}
	if err := v.box.Guest.WriteFile(v.r.Context(), "", at, "", content); err != nil {
		return v.thrownBy(err, "")
	}
	return v.answer(map[string]any{})
}

// unpack unpacks an archive, or moves a file to its place. An archive is hostile, so that happens in the container.
const unpack = `set -e
mkdir -p -- "$(dirname -- "$2")"
if [ "$3" = true ]; then
	mkdir -p -- "$2"
	if command -v python3 >/dev/null; then python3 -m zipfile -e "$1" "$2"; else unzip -qo "$1" -d "$2"; fi
	rm -f -- "$1"
else
	mv -f -- "$1" "$2"
fi`

// upload serves POST /upload: a form with a file, which comes before the path to which it goes.
func (v *visit) upload() error {
	const patience = 10 * time.Minute
	form, err := v.x.Form(v.r, "target_path", "unzip")
	if err != nil {
		return err
	}
	if !form.HasFile() {
		return berth.Invalid("file", "The form has no file.")
	}
	temporary := "/tmp/.upload-" + berth.NewID("")
	if err := v.box.Guest.WriteFile(v.r.Context(), "", temporary, "", form); err != nil {
		if e, ok := errors.AsType[*berth.Error](err); ok {
			return e
		}
		return v.thrownBy(err, "")
	}
	target := form.Fields["target_path"]
	if target == "" {
		return berth.Invalid("target_path", "Missing required parameter: 'target_path'.")
	}
	if target, err = v.absolute(target); err != nil {
		return err
	}
	req := guest.ProcessRequest{Cmd: "/bin/sh", Args: []string{"-c", unpack, "sh", temporary, target,
		form.Fields["unzip"]}}
	out, err := bash.Execute(v.r.Context(), v.box.Guest, req, patience, 64<<10)
	if err != nil {
		return v.thrownBy(err, "")
	}
	if out.ExitCode != 0 {
		return builtin("OSError", "The upload could not be put in its place: "+out.Stderr)
	}
	return v.answer(map[string]any{})
}
