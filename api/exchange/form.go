package exchange

import (
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// maxField is the maximum size of a form's field, except its file, in bytes.
const maxField = 64 << 10

// formBuffer is the size of the read buffer of a form in bytes.
const formBuffer = 64 << 10

// A Form is a multipart body with at most one file, in one known part. Other fields may
// precede and follow the file. Read streams the file. It returns io.EOF only if the whole
// form has been read and is valid, so a caller never stores the file of an incomplete form.
type Form struct {
	parts    *multipart.Reader
	part     string   // the name of the file's part
	Known    []string // the allowed fields
	file     *multipart.Part
	Filename string
	Fields   map[string]string // complete after the end of the file
	end      error             // the final result of Read
}

// Form reads a form up to its file in the part "file", or to its end if it has no file. Fields
// other than the known ones are errors.
func (x *Exchange) Form(r *http.Request, known ...string) (*Form, error) {
	return x.FormOf(r, "file", known...)
}

// FormOf is like Form for a file in another part.
func (x *Exchange) FormOf(r *http.Request, part string, known ...string) (*Form, error) {
	parts, err := partsOf(x, r)
	if err != nil {
		return nil, err
	}
	f := &Form{parts: parts, part: part, Known: known, Fields: map[string]string{}}
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
		if name == f.part && f.file == nil {
			f.file = part
			f.Filename, err = fileName(part)
			return err
		}
		if _, twice := f.Fields[name]; twice || name == f.part {
			return berth.Invalid(rule.Clip(name), "Duplicate parameter: '%s'.", rule.Clip(name))
		}
		if !slices.Contains(f.Known, name) {
			return rule.UnknownParameter(rule.Clip(name))
		}
		if f.Fields[name], err = fieldText(name, part); err != nil {
			return err
		}
	}
}

// Read reads the file.
func (f *Form) Read(b []byte) (int, error) {
	if f.file == nil {
		return 0, rule.Missing(f.part)
	}
	if f.end != nil { // some callers read again after the end
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
	return &berth.Error{Code: berth.CodeInvalid, Message: "The multipart body is malformed or incomplete.", Err: err}
}

// fileName returns the name of an uploaded file as the client sent it, including
// directories. The package that stores the file must check it.
func fileName(part *multipart.Part) (string, error) {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return "", malformed(err)
	}
	if params["filename"] == "" {
		return "", rule.Missing(part.FormName() + ".filename")
	}
	return params["filename"], nil
}
