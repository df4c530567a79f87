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

// FormFiles is a multipart body with files in parts of one name. Other fields may stand
// anywhere between them.
type FormFiles struct {
	parts  *multipart.Reader
	part   string // the name of the files' parts; "[]" may follow it
	known  []string
	Fields map[string]string // complete after the last file
}

// FormFiles reads a form with any number of files in the part named part. Fields other than
// the known ones are errors.
func (x *Exchange) FormFiles(r *http.Request, part string, known ...string) (*FormFiles, error) {
	parts, err := partsOf(x, r)
	if err != nil {
		return nil, err
	}
	return &FormFiles{parts: parts, part: part, known: known, Fields: map[string]string{}}, nil
}

// partsOf returns a reader of the parts of a request's body.
func partsOf(x *Exchange, r *http.Request) (*multipart.Reader, error) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return nil, berth.Errorf(berth.CodeInvalid,
			"The request body must be multipart/form-data. Send it with the header 'Content-Type: multipart/form-data'.")
	}
	body := bufio.NewReaderSize(x.Body(r, 0), formBuffer) // the form's own is 4 KiB
	return multipart.NewReader(body, params["boundary"]), nil
}

// Next returns the next file: its name as the client sent it, including directories, its media
// type, and its content, which is valid until the next call. It returns io.EOF at the end of the
// form.
func (f *FormFiles) Next() (name, mediaType string, content io.Reader, err error) {
	for {
		part, err := f.parts.NextRawPart()
		if err == io.EOF {
			return "", "", nil, io.EOF
		}
		if err != nil {
			return "", "", nil, malformed(err)
		}
		if field := part.FormName(); field != f.part && field != f.part+"[]" {
			if err := f.field(field, part); err != nil {
				return "", "", nil, err
			}
			continue
		}
		if name, err = fileName(part); err != nil {
			return "", "", nil, err
		}
		return name, part.Header.Get("Content-Type"), formPart{part}, nil
	}
}

func (f *FormFiles) field(name string, part io.Reader) (err error) {
	if !slices.Contains(f.known, name) {
		return rule.UnknownParameter(rule.Clip(name))
	}
	if _, twice := f.Fields[name]; twice {
		return berth.Invalid(name, "Duplicate parameter: '%s'.", name)
	}
	f.Fields[name], err = fieldText(name, part)
	return err
}

// fieldText reads a field of a form.
func fieldText(name string, part io.Reader) (string, error) {
	value, err := io.ReadAll(io.LimitReader(part, maxField+1))
	if err != nil {
		return "", malformed(err)
	}
	if len(value) > maxField {
		return "", rule.Errorf("string_above_max_length", name,
			"Invalid '%s': string too long. Expected a string of at most %d bytes.", name, maxField)
	}
	return string(value), nil
}

// A formPart is a file that reports a form that is cut off as an error for the client.
type formPart struct{ io.Reader }

func (p formPart) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if err != nil && err != io.EOF {
		err = malformed(err)
	}
	return n, err
}
