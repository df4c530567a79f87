package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// maxUpload is the number of bytes of a form with files. Larger files are uploaded with the API.
const maxUpload = 256 << 20

// A newPage is the form for a new response: what it offers, and what the user has entered.
type newPage struct {
	Form formToken
	offers
	task
	Error string
	Code  []codeView // the same request, if it was asked for
}

// A codeView is a request as a program.
type codeView struct{ Name, Text string }

// show serves GET /console/new: the form for a new response.
func (p *newPage) show(v *visit) error {
	models, err := modelsOf(v)
	if err != nil {
		return err
	}
	*p = newPage{Form: v.formToken(), task: task{Tools: []string{berth.ToolShell}, Model: firstModel(models)}}
	p.Models = models
	if from := v.r.URL.Query().Get("from"); from != "" {
		turn, err := readTurn(v, berth.ResponseID(from))
		if err != nil {
			return err
		}
		p.task = taskOfTurn(turn)
	}
	p.offers.read(v, p.Model)
	if p.used != "" {
		var c berth.Container
		err := v.get(pathTo("/v1/containers", p.used), &c)
		if err != nil && !refused(err) { // one that was deleted has no settings
			return err
		}
		if err == nil {
			p.addContainer(c, p.Templates)
		}
	}
	return v.show(http.StatusOK, "new", "New run", p)
}

// create serves POST /console/new: it creates a response, or shows the request as code.
func (p *newPage) create(v *visit) error {
	models, err := modelsOf(v)
	if err != nil {
		return err
	}
	show := func(status int, message string) error {
		if err := v.form.finish(); err != nil {
			return err
		}
		p.fill(v, models)
		p.Error = message
		return v.show(status, "new", "New run", p)
	}
	if strings.TrimSpace(v.text("text")) == "" {
		return show(http.StatusBadRequest, "The task is empty.")
	}
	if v.r.URL.Query().Get("show") != "" {
		if err := v.form.finish(); err != nil {
			return err
		}
		p.fill(v, models)
		if p.secret != "" {
			p.secret = "YOUR-SECRET"
		}
		if p.Code, err = codeOf(p.request(nil), baseURL(v)); err != nil {
			return err
		}
		return v.show(http.StatusOK, "new", "New run", p)
	}
	files, err := uploadAll(v, "user_data")
	if err == nil {
		p.fill(v, models)
		req := p.request(files)
		req["background"] = true // it does not need this page
		err = createResponse(v, req)
	}
	if f, ok := errors.AsType[*failure](err); ok && f.Status != http.StatusUnauthorized {
		return show(f.Status, f.Message)
	}
	return err
}

// fill shows the values entered in the form.
func (p *newPage) fill(v *visit, models []string) {
	*p = newPage{Form: v.formToken(), task: taskOf(v)}
	p.Models = models
	p.offers.read(v, p.Model)
}

// uploadAll uploads the files of the form as they come, for a purpose, and reads the fields after them.
func uploadAll(v *visit, purpose string) ([]berth.FileID, error) {
	var ids []berth.FileID
	for v.form.next != nil {
		file := v.form.next
		var created struct{ ID berth.FileID }
		if err := upload(v, "/v1/files", file.FileName(), map[string]string{"purpose": purpose}, file,
			&created); err != nil {
			return nil, cmp.Or(file.err, err)
		}
		ids = append(ids, created.ID)
		if err := v.form.advance(); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// upload sends a file to a route of the API, with other fields, and decodes the answer. It
// does not return before it has ceased to read the file.
func upload(v *visit, route, name string, fields map[string]string, file io.Reader, into any) error {
	return uploadAs(v, route, "file", name, fields, file, into)
}

// uploadAs is upload for a route that has the file in a field of another name.
func uploadAs(v *visit, route, field, name string, fields map[string]string, file io.Reader, into any) error {
	in, out := io.Pipe()
	parts := multipart.NewWriter(out)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		var err error
		for other, value := range fields {
			err = errors.Join(err, parts.WriteField(other, value))
		}
		if err == nil {
			var part io.Writer
			if part, err = parts.CreateFormFile(field, name); err == nil {
				_, err = io.Copy(part, file)
			}
		}
		if err == nil {
			err = parts.Close()
		}
		out.CloseWithError(err) // nil is the end
	}()
	defer func() {
		in.Close()
		<-sent
	}()
	return v.exchange(http.MethodPost, route, in, parts.FormDataContentType(), into)
}

// codeOf returns programs that send a request to the server, whose API is at base.
func codeOf(req map[string]any, base string) ([]codeView, error) {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(req); err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	body := strings.TrimSpace(b.String())
	quoted := strings.ReplaceAll(body, "'", `'\''`)
	return []codeView{
		{"curl", "curl " + base + "/responses -H \"Authorization: Bearer $OPENAI_API_KEY\" -H 'Content-Type: application/json' -d '" + quoted + "'"},
		{"Python", "from openai import OpenAI\n\nresponse = OpenAI(base_url=\"" + base + "\").responses.create(" + pythonArguments(req) +
			")\nprint(response.output_text)"},
		{"JavaScript", "import OpenAI from \"openai\";\n\nconst response = await new OpenAI({ baseURL: \"" + base + "\" }).responses.create(" +
			body + ");\nconsole.log(response.output_text);"},
	}, nil
}

// pythonArguments returns the fields of a request as arguments of the SDK, which passes on those
// of Berth's own as extra_body.
func pythonArguments(req map[string]any) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(req)) {
		value := python(req[name])
		if name == "berth" {
			name, value = "extra_body", "{\"berth\": "+value+"}"
		}
		b.WriteString("\n    " + name + "=" + value + ",")
	}
	return b.String() + "\n"
}
