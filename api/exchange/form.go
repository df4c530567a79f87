package exchange

import (
	"bufio"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// maxField bounds a field of a form that is not its file, in bytes.
const maxField = 64 << 10

// formBuffer is how much of a form is read at once, in bytes.
const formBuffer = 64 << 10

// A Form is a multipart body with at most one file, in the part "file". Other fields may
// come before and after it. The file is read as it arrives: Read ends with
// io.EOF when all of the form has been read and is valid, so a caller that stores the file
// stores it of a complete form or not at all.
type Form struct {
	parts    *multipart.Reader
	Known    []string // the fields that may be in it
	file     *multipart.Part
	Filename string
	Fields   map[string]string // after the end of the file, all of them
	end      error             // what Read has ended with
}

// Form reads a form up to its file, or, if it has none, all of it. Only the known
// fields may be in it.
func (x *Exchange) Form(r *http.Request, known ...string) (*Form, error) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return nil, berth.Errorf(berth.CodeInvalid, "The request body must be multipart/form-data.")
	}
	body := bufio.NewReaderSize(x.Body(r, 0), formBuffer) // the form's own is 4 KiB
	f := &Form{parts: multipart.NewReader(body, params["boundary"]), Known: known, Fields: map[string]string{}}
	if err := f.advance(); err != nil {
		return nil, err
	}
	return f, nil
}

// HasFile reports whether the form has a file.
func (f *Form) HasFile() bool { return f.file != nil }

// advance reads fields up to the file, or to the end of the form.
func (f *Form) advance() error {
	for {
		part, err := f.parts.NextRawPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return malformed(err)
		}
		name := part.FormName()
		if name == "file" && f.file == nil {
			f.file = part
			f.Filename, err = fileName(part)
			return err
		}
		if _, twice := f.Fields[name]; twice || name == "file" {
			return berth.Invalid(rule.Clip(name), "Duplicate parameter: '%s'.", rule.Clip(name))
		}
		if !slices.Contains(f.Known, name) {
			return rule.UnknownParameter(rule.Clip(name))
		}
		value, err := io.ReadAll(io.LimitReader(part, maxField+1))
		if err != nil {
			return malformed(err)
		}
		if len(value) > maxField {
			return rule.Errorf("string_above_max_length", name, "Invalid '%s': string too long. Expected a string of at most %d bytes.", name, maxField)
		}
		f.Fields[name] = string(value)
	}
}

// Read reads the file.
func (f *Form) Read(b []byte) (int, error) {
	if f.file == nil {
		return 0, rule.Missing("file")
	}
	if f.end != nil { // some readers ask again
		return 0, f.end
	}
	n, err := f.file.Read(b)
	switch {
	case err == io.EOF:
		if f.end = f.advance(); f.end == nil {
			f.end = io.EOF
		}
	case err != nil:
		f.end = malformed(err)
	}
	return n, f.end
}

func malformed(err error) error {
	return &berth.Error{Code: berth.CodeInvalid, Message: "The multipart body is malformed or did not arrive whole.", Err: err}
}

// fileName returns the name of an uploaded file as the client sent it, with any
// directories. The package that stores the file checks it.
func fileName(part *multipart.Part) (string, error) {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return "", malformed(err)
	}
	if params["filename"] == "" {
		return "", rule.Missing("file.filename")
	}
	return params["filename"], nil
}
