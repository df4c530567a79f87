package console

import (
	"bytes"
	"encoding/csv"
	"encoding/hex"
	"html/template"
	"io"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth/console/markdown"
	"github.com/berth-run/berth/guest"
)

const (
	maxPreview = 256 << 10 // bytes of a text that are shown
	maxBinary  = 512       // bytes of other content that are shown
	maxRows    = 500       // of a table
	maxColumns = 50
)

// A preview is what the page shows of a file.
type preview struct {
	guest.Entry
	Kind   previewKind
	Text   string        // of a text, and the source of HTML and Markdown; of binary content, a dump
	HTML   template.HTML // of Markdown
	Rows   [][]string    // of a table, with its head
	Cut    bool          // the file is longer than the preview
	Source string        // path that has the file's content; "" if the browser needs none
}

// Editable reports whether the page shows the whole of a text, which can be edited.
func (p preview) Editable() bool {
	return p.Regular && !p.Cut && p.Source == "" && (p.Kind == previewText || p.Kind == previewMarkdown) ||
		p.Kind == previewHTML && !p.Cut
}

// Version returns what changes with the file's content.
func (p preview) Version() string { return versionOf(p.Entry) }

// Ends returns how lines of the text end: crlf, or "" for a line feed.
func (p preview) Ends() string {
	if strings.Contains(p.Text, "\r\n") {
		return "crlf"
	}
	return ""
}

// Name returns the last element of the file's path.
func (p preview) Name() string { return path.Base(p.Path) }

// A previewKind is how a file is shown.
type previewKind string

const (
	previewText     previewKind = "text"
	previewMarkdown previewKind = "markdown"
	previewTable    previewKind = "table"
	previewImage    previewKind = "image"
	previewPDF      previewKind = "pdf"
	previewHTML     previewKind = "html"
	previewBinary   previewKind = "binary"
	previewNone     previewKind = "none" // it is not a regular file
)

// imageTypes are the images that browsers show, by extension.
var imageTypes = map[string]string{".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg",
	".gif": "image/gif", ".webp": "image/webp",
	".avif": "image/avif", ".bmp": "image/bmp", ".ico": "image/x-icon", ".svg": "image/svg+xml"}

// kindOf returns how a file is shown, by its extension. Text may turn out to be binary.
func kindOf(name string) previewKind {
	ext := strings.ToLower(path.Ext(name))
	switch ext {
	case ".pdf":
		return previewPDF
	case ".html", ".htm":
		return previewHTML
	case ".csv", ".tsv":
		return previewTable
	case ".md", ".markdown":
		return previewMarkdown
	}
	if imageTypes[ext] != "" {
		return previewImage
	}
	return previewText
}

// newPreview reads what the page shows of a file.
func newPreview(v *visit, client *guest.Client, at guest.Entry) (*preview, error) {
	p := &preview{Entry: at, Kind: kindOf(at.Path)}
	if !at.Regular {
		p.Kind = previewNone
		return p, nil
	}
	switch p.Kind {
	case previewImage, previewPDF, previewHTML:
		p.Source = "/console/containers/" + url.PathEscape(v.r.PathValue("container")) + "/files/raw?" +
			url.Values{"path": {at.Path}}.Encode()
	}
	if p.Kind == previewImage || p.Kind == previewPDF {
		return p, nil
	}
	body, _, err := client.ReadFile(v.r.Context(), "", at.Path, "")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxPreview+1))
	if err != nil {
		return nil, err
	}
	p.fill(text)
	if p.Kind == previewMarkdown {
		p.HTML = markdown.Render(v.r.Context(), []string{p.Text})[0]
	}
	return p, nil
}

// fill sets the preview of content.
func (p *preview) fill(content []byte) {
	if p.Cut = len(content) > maxPreview; p.Cut {
		content = content[:maxPreview]
		for n := 0; n < utf8.UTFMax && !utf8.Valid(content); n++ {
			content = content[:len(content)-1] // an incomplete character
		}
	}
	if !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0 {
		p.Kind, p.Source = previewBinary, ""
		p.Cut = p.Cut || len(content) > maxBinary
		p.Text = hex.Dump(content[:min(len(content), maxBinary)])
		return
	}
	p.Text = string(content)
	if p.Kind == previewTable {
		if rows, cut, ok := tableOf(p.Text, strings.EqualFold(path.Ext(p.Path), ".tsv")); ok {
			p.Rows, p.Cut, p.Text = rows, p.Cut || cut, ""
		} else {
			p.Kind = previewText
		}
	}
}

// tableOf parses CSV, or TSV. It drops the last line if the text was cut within it.
func tableOf(text string, tabs bool) (rows [][]string, cut, ok bool) {
	in := csv.NewReader(strings.NewReader(text))
	in.FieldsPerRecord, in.LazyQuotes = -1, true
	if tabs {
		in.Comma = '\t'
	} else if first, _, _ := strings.Cut(text, "\n"); strings.Count(first, ";") > strings.Count(first, ",") {
		in.Comma = ';'
	}
	for len(rows) < maxRows {
		row, err := in.Read()
		if err != nil {
			return rows, false, err == io.EOF && len(rows) > 0
		}
		if len(row) > maxColumns {
			row = append(row[:maxColumns:maxColumns], "…")
		}
		rows = append(rows, row)
	}
	return rows, true, true
}

// The policies of a file's content. It has an origin of its own without rights on the console, also
// when it is opened by itself, and may load nothing.
const (
	rawPolicy  = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'self'"
	htmlPolicy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; media-src data: blob:; font-src data:; " +
		"base-uri 'none'; form-action 'none'; sandbox allow-scripts; frame-ancestors 'self'"
	pdfPolicy = "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'self'"
)

// raw serves GET /console/containers/{container}/files/raw: the content of a file for its preview.
func (*filesPage) raw(v *visit) error {
	at, err := pathOf(v.r.URL.Query().Get("path"), "/")
	if err != nil {
		return err
	}
	return passRaw(v, "/v1/containers/"+url.PathEscape(v.r.PathValue("container"))+"/guest/files?"+
		url.Values{"path": {at}}.Encode(), at)
}

// passRaw answers with a file of the API for its preview, with the policy of its name.
func passRaw(v *visit, from, name string) error {
	kind, csp := "text/plain; charset=utf-8", rawPolicy
	switch kindOf(name) {
	case previewImage:
		kind = imageTypes[strings.ToLower(path.Ext(name))]
	case previewPDF:
		kind, csp = "application/pdf", pdfPolicy // a browser's viewer does not run in a sandbox
	case previewHTML:
		kind, csp = "text/html; charset=utf-8", htmlPolicy
	}
	h := v.w.Header()
	h.Set("Content-Security-Policy", csp)
	h.Set("X-Frame-Options", "SAMEORIGIN")
	h.Set("Referrer-Policy", "no-referrer")
	return passFile(v, from, kind, "inline", path.Base(name))
}
