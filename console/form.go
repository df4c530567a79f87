package console

import (
	"crypto/hmac"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
)

const (
	maxForm  = 64 << 10 // bytes of a form without files
	maxField = 10 << 20 // bytes of the fields of a form with files
	maxParts = 1000     // fields and files
)

// A form is the form of a POST. A file is read where it is needed, as it comes, and stored
// nowhere on the way. So a page puts its fields before its files, and the token first: no
// byte of a file is read of a form without it.
type form struct {
	fields url.Values        // those before next
	parts  *multipart.Reader // nil for a form without files
	next   *formFile         // the first file that was not read; nil for none, or at the end
	room   int               // bytes of further fields
	left   int               // further parts
}

// A formFile is a file of a form.
type formFile struct {
	*multipart.Part
	err error // what ended the form within the file
}

// Read implements io.Reader.
func (f *formFile) Read(p []byte) (int, error) {
	n, err := f.Part.Read(p)
	if err != nil && err != io.EOF {
		f.err = formFailure(err)
		err = f.err
	}
	return n, err
}

// readForm reads a form of at most a number of bytes up to its first file. It refuses one
// without the token.
func readForm(w http.ResponseWriter, r *http.Request, most int64, token string) (*form, error) {
	f := &form{fields: url.Values{}, room: maxField, left: maxParts}
	body := r.Body
	r.Body = http.MaxBytesReader(w, body, most)
	var err error
	if f.parts, err = r.MultipartReader(); errors.Is(err, http.ErrNotMultipart) {
		r.Body = http.MaxBytesReader(w, body, min(most, maxForm))
		if err := r.ParseForm(); err != nil {
			return nil, formFailure(err)
		}
		f.fields = r.PostForm
		return f, checkToken(f.fields.Get("form"), token)
	}
	if err != nil {
		return nil, formFailure(err)
	}
	part, err := f.parts.NextPart()
	if err != nil {
		return nil, formFailure(err)
	}
	got := ""
	if part.FormName() == "form" && part.FileName() == "" {
		if got, err = f.read(part); err != nil {
			return nil, err
		}
	}
	if err := checkToken(got, token); err != nil {
		return nil, err
	}
	return f, f.advance()
}

// checkToken refuses a form whose token is not the one of the session's forms.
func checkToken(got, want string) error {
	if !hmac.Equal([]byte(got), []byte(want)) {
		return &failure{http.StatusForbidden, "This form is no longer valid. Go back, reload the page and try again."}
	}
	return nil
}

// read returns the value of a field.
func (f *form) read(part *multipart.Part) (string, error) {
	value, err := io.ReadAll(io.LimitReader(part, int64(f.room)+1))
	if err != nil {
		return "", formFailure(err)
	}
	if f.room -= len(value); f.room < 0 {
		return "", tooLarge(maxField)
	}
	return string(value), nil
}

// advance reads fields up to the next file or the end.
func (f *form) advance() error {
	f.next = nil
	if f.parts == nil {
		return nil
	}
	for {
		part, err := f.parts.NextPart()
		if err == io.EOF {
			f.parts = nil
			return nil
		}
		if err != nil {
			return formFailure(err)
		}
		if f.left--; f.left < 0 {
			return &failure{http.StatusBadRequest, "The form has too many fields or files."}
		}
		name := part.FormName()
		if part.FileName() != "" {
			if name == "file" {
				f.next = &formFile{Part: part}
				return nil
			}
			continue
		}
		value, err := f.read(part)
		if err != nil {
			return err
		}
		f.fields.Add(name, value)
	}
}

// finish reads the rest of the form, and drops its files.
func (f *form) finish() error {
	for f.parts != nil {
		if err := f.advance(); err != nil {
			return err
		}
	}
	return nil
}

// formFailure returns what the user sees when a form cannot be read.
func formFailure(err error) error {
	if most, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(most.Limit)
	}
	return &failure{http.StatusBadRequest, "The form cannot be read."}
}

func tooLarge(most int64) error {
	return &failure{http.StatusRequestEntityTooLarge, "The form is larger than " + size(most) + "."}
}
