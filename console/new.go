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

// A newPage is the form for a new response: what the user has entered.
type newPage struct {
	Form         string
	Models       []string
	Model        string
	Text         string
	Instructions string
	Effort       string   // of reasoning; "" is the model's default
	Tools        []string // selected
	Approve      bool     // commands wait for approval
	Hosts        string   // that the container may reach
	Stores       []berth.VectorStore
	Store        string   // that file search reads
	Down         []string // upstreams that do not answer, whose models may be missing
	Error        string
	Code         []codeView // the same request, if it was asked for
}

// A codeView is a request as a program.
type codeView struct{ Name, Text string }

// Efforts returns the values of the field.
func (newPage) Efforts() []string { return []string{"minimal", "low", "medium", "high"} }

// A toolChoice is a tool that the form offers.
type toolChoice struct {
	Type, Name, About string
	Missing           string // why it cannot be chosen; "" if it can
}

// Choices returns the tools of the form.
func (p newPage) Choices() []toolChoice {
	search := toolChoice{Type: berth.ToolFileSearch, Name: "File search", About: "passages of a vector store"}
	if len(p.Stores) == 0 {
		search.Missing = "the project has no vector store: berth vector-store create makes one"
	}
	return []toolChoice{
		{Type: berth.ToolShell, Name: "Shell", About: "commands in a container"},
		{Type: berth.ToolCode, Name: "Code interpreter", About: "Python in a container"},
		search,
		{Type: berth.ToolWebSearch, Name: "Web search", About: "if the operator has configured a search engine"},
	}
}

// Chosen reports whether a tool is selected.
func (p newPage) Chosen(tool string) bool { return slices.Contains(p.Tools, tool) }

// show serves GET /console/new: the form for a new response.
func (p *newPage) show(v *visit) error {
	models, err := modelsOf(v)
	if err != nil {
		return err
	}
	*p = newPage{Form: v.formToken(), Models: models, Tools: []string{berth.ToolShell}, Model: firstModel(models)}
	if from := v.r.URL.Query().Get("from"); from != "" {
		if err := p.copyRun(v, berth.ResponseID(from)); err != nil {
			return err
		}
	}
	p.readOffers(v)
	return v.show(http.StatusOK, "new", "New run", p)
}

// firstModel returns the model that the form selects: not the one that repeats the task, unless there is no other.
func firstModel(models []string) string {
	for _, m := range models {
		if m != "scripted" {
			return m
		}
	}
	if len(models) > 0 {
		return models[0]
	}
	return ""
}

// copyRun fills the form with what a response was asked for.
func (p *newPage) copyRun(v *visit, id berth.ResponseID) error {
	turn, err := readTurn(v, id)
	if err != nil {
		return err
	}
	p.Model, p.Instructions = turn.Model, ""
	if text := textOf(turn.Instructions); !strings.HasPrefix(text, "[") {
		p.Instructions = text
	}
	for _, e := range turn.Input {
		if e.Role() == "user" {
			p.Text = e.Text()
		}
	}
	p.Tools = nil
	for _, tool := range turn.Tools {
		p.Tools = append(p.Tools, tool.Type())
	}
	return nil
}

// readOffers reads what the form can offer beside models. It offers less if the API does not say.
func (p *newPage) readOffers(v *visit) {
	var stores list[berth.VectorStore]
	if v.get("/v1/vector_stores?limit=100", &stores) == nil {
		p.Stores = stores.Data
	}
	var status berth.ServerStatus
	if v.get("/v1/organization/status", &status) != nil {
		return // only some keys see it
	}
	for _, u := range status.Upstreams {
		if u.Circuit == "open" {
			p.Down = append(p.Down, u.Name)
		}
	}
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
		if p.Code, err = codeOf(p.request(nil), baseURL(v)); err != nil {
			return err
		}
		return v.show(http.StatusOK, "new", "New run", p)
	}
	files, err := uploadAll(v)
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
	in := v.form.fields
	*p = newPage{Form: v.formToken(), Models: models, Model: in.Get("model"), Text: v.text("text"),
		Instructions: v.text("instructions"),
		Effort:       in.Get("effort"), Tools: in["tool"], Approve: in.Get("approve") != "", Hosts: in.Get("hosts"),
		Store: in.Get("store")}
	p.readOffers(v)
}

// request returns the body of POST /v1/responses. The files are in the container, or if there is
// none, in the input.
func (p newPage) request(files []berth.FileID) map[string]any {
	req := map[string]any{"model": p.Model, "input": p.Text}
	if text := strings.TrimSpace(p.Instructions); text != "" {
		req["instructions"] = text
	}
	if p.Effort != "" {
		req["reasoning"] = map[string]any{"effort": p.Effort}
	}
	container := map[string]any{}
	if len(files) > 0 {
		container["file_ids"] = files
	}
	if hosts := strings.FieldsFunc(p.Hosts, func(r rune) bool {
		return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t'
	}); len(hosts) > 0 {
		container["network_policy"] = berth.NetworkPolicy{Type: "allowlist", AllowedDomains: hosts}
	}
	var tools []any
	contained := false
	for _, tool := range p.Tools {
		entry := map[string]any{"type": tool}
		switch tool {
		case berth.ToolShell:
			entry["environment"] = with(container, "type", "container_auto")
			contained = true
			if p.Approve {
				req["berth"] = map[string]any{"require_approval": "always"}
			}
		case berth.ToolCode:
			entry["container"] = with(container, "type", "auto")
			contained = true
		}
		if tool == berth.ToolFileSearch {
			entry["vector_store_ids"] = []string{p.Store}
		}
		tools = append(tools, entry)
	}
	if tools != nil {
		req["tools"] = tools
	}
	if len(files) > 0 && !contained {
		parts := []any{map[string]any{"type": "input_text", "text": p.Text}}
		for _, id := range files {
			parts = append(parts, map[string]any{"type": "input_file", "file_id": id})
		}
		req["input"] = []any{map[string]any{"role": "user", "content": parts}}
	}
	return req
}

// with returns an object with one more field.
func with(fields map[string]any, name string, value any) map[string]any {
	out := map[string]any{name: value}
	for name, value := range fields {
		out[name] = value
	}
	return out
}

// uploadAll uploads the files of the form as they come, and reads the fields after them.
func uploadAll(v *visit) ([]berth.FileID, error) {
	var ids []berth.FileID
	for v.form.next != nil {
		file := v.form.next
		var created struct{ ID berth.FileID }
		if err := upload(v, "/v1/files", file.FileName(), map[string]string{"purpose": "user_data"}, file,
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
	in, out := io.Pipe()
	parts := multipart.NewWriter(out)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		var err error
		for field, value := range fields {
			err = errors.Join(err, parts.WriteField(field, value))
		}
		if err == nil {
			var part io.Writer
			if part, err = parts.CreateFormFile("file", name); err == nil {
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
