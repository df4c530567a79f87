package console

import (
	"cmp"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/console/markdown"
	"github.com/berth-run/berth/guest"
)

// A storedFilesPage is the list of stored files.
type storedFilesPage struct {
	rows[berth.File]
	Purpose string // the filter; "" shows all
}

// uploadPurposes are the purposes of the form, and filePurposes those of the filter.
var (
	uploadPurposes = []string{"user_data", "assistants", "batch", "vision", "evals", "fine-tune"}
	filePurposes   = append(slices.Clone(uploadPurposes), "assistants_output", "batch_output")
)

// UploadPurposes returns the values of the form.
func (storedFilesPage) UploadPurposes() []string { return uploadPurposes }

// Purposes returns the values of the filter.
func (storedFilesPage) Purposes() []string { return filePurposes }

// show serves GET /console/files.
func (p *storedFilesPage) show(v *visit) error {
	text := textIn(func(f berth.File) []string { return []string{f.Filename, string(f.ID)} })
	if err := p.find(v, "/v1/files", text, "purpose"); err != nil {
		return err
	}
	p.Purpose = v.r.URL.Query().Get("purpose")
	return v.show(http.StatusOK, "storedfiles", "Files", p)
}

// create serves POST /console/files: it uploads files.
func (*storedFilesPage) create(v *visit) error {
	ids, err := uploadAll(v, cmp.Or(v.form.fields.Get("purpose"), "user_data"))
	switch {
	case err != nil:
		return err
	case len(ids) == 0:
		return errNoFile
	case len(ids) == 1:
		return v.redirect(pathTo("/console/files", ids[0]))
	}
	return v.redirect("/console/files")
}

// errNoFile tells the user that a form has no file.
var errNoFile = &failure{http.StatusBadRequest, "The form has no files. Go back and choose some."}

// A storedFilePage is the page of a stored file.
type storedFilePage struct {
	berth.File
	Form    formToken
	Preview *preview
}

// read reads the file of the visit, and returns the API's path of it.
func (p *storedFilePage) read(v *visit) (from string, err error) {
	from = pathTo("/v1/files", v.r.PathValue("file"))
	return from, v.get(from, &p.File)
}

// show serves GET /console/files/{file}.
func (p *storedFilePage) show(v *visit) error {
	from, err := p.read(v)
	if err != nil {
		return err
	}
	p.Form = v.formToken()
	p.Preview = &preview{Entry: guest.Entry{Path: p.Filename, Size: p.Bytes, Regular: true}, Kind: kindOf(p.Filename)}
	if err := p.fill(v, from); err != nil {
		return err
	}
	allowFrames(v)
	return v.show(http.StatusOK, "storedfile", p.Filename, p)
}

// fill reads the preview of the file.
func (p *storedFilePage) fill(v *visit, from string) error {
	switch p.Preview.Kind {
	case previewImage, previewPDF, previewHTML:
		p.Preview.Source = pathTo("/console/files", p.ID) + "/raw"
	}
	if p.Preview.Kind == previewImage || p.Preview.Kind == previewPDF {
		return nil
	}
	body, err := v.send(http.MethodGet, from+"/content", nil, "")
	if err != nil {
		return err
	}
	defer body.Close()
	content, err := io.ReadAll(io.LimitReader(body, maxPreview+1))
	if err != nil {
		return err
	}
	p.Preview.fill(content)
	if p.Preview.Kind == previewMarkdown {
		p.Preview.HTML = markdown.Render(v.r.Context(), []string{p.Preview.Text})[0]
	}
	return nil
}

// raw serves GET /console/files/{file}/raw: the content of a file for its preview.
func (p *storedFilePage) raw(v *visit) error {
	from, err := p.read(v)
	if err != nil {
		return err
	}
	return passRaw(v, from+"/content", p.Filename)
}

// download serves GET /console/files/{file}/download.
func (p *storedFilePage) download(v *visit) error {
	from, err := p.read(v)
	if err != nil {
		return err
	}
	return passFile(v, from+"/content", "application/octet-stream", "attachment", path.Base(p.Filename))
}

// change serves POST /console/files/{file}: it deletes the file.
func (p *storedFilePage) change(v *visit) error {
	if v.form.fields.Get("do") != "delete" {
		return &failure{http.StatusBadRequest, "The form is incomplete."}
	}
	if err := v.delete(pathTo("/v1/files", v.r.PathValue("file"))); err != nil {
		return err
	}
	return v.redirect("/console/files")
}

// Lines reports whether the file can be the input of a batch.
func (p storedFilePage) Lines() bool {
	return p.Purpose == "batch" && !strings.HasSuffix(p.Status, "error")
}
