package console

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// A toolChoice is a tool that the form of a new response offers.
type toolChoice struct {
	Type, Name, About string
	Missing           string // why it cannot be chosen; "" if it can
}

// offers is what the form of a new response offers.
type offers struct {
	Models    []string
	Stores    []berth.VectorStore
	Skills    []berth.Skill
	Templates []berth.Template
	Down      []string     // upstreams that do not answer, whose models may be missing
	Choices   []toolChoice // for the chosen model
}

// Efforts returns the values of the field.
func (offers) Efforts() []string { return []string{"minimal", "low", "medium", "high"} }

// Memories returns the values of the field.
func (offers) Memories() []string { return []string{"1g", "4g", "16g", "64g"} }

// read reads what the form can offer for a model beside models. It offers less if the API does not say.
func (o *offers) read(v *visit, model string) {
	var stores list[berth.VectorStore]
	if v.get("/v1/vector_stores?limit=100", &stores) == nil {
		o.Stores = stores.Data
	}
	var skills list[berth.Skill]
	if v.get("/v1/skills?limit=100", &skills) == nil {
		o.Skills = skills.Data
	}
	var templates list[berth.Template]
	if v.get("/v1/templates", &templates) == nil {
		o.Templates = slices.DeleteFunc(templates.Data, func(t berth.Template) bool { return len(t.Names) == 0 })
	}
	o.Choices = o.choicesFor(v, model)
	var status berth.ServerStatus
	if v.get("/v1/organization/status", &status) != nil {
		return // only some keys see it
	}
	for _, u := range status.Upstreams {
		if u.Circuit == "open" {
			o.Down = append(o.Down, u.Name)
		}
	}
}

// choicesFor returns the tools, with the reason why the server does not have one for a model.
func (o *offers) choicesFor(v *visit, model string) []toolChoice {
	search := toolChoice{Type: berth.ToolFileSearch, Name: "File search", About: "passages of a vector store"}
	if len(o.Stores) == 0 {
		search.Missing = "the project has no vector store yet"
	}
	web := toolChoice{Type: berth.ToolWebSearch, Name: "Web search", About: "pages of the web"}
	pictures := toolChoice{Type: berth.ToolImageGeneration, Name: "Image generation", About: "pictures from words"}
	computer := toolChoice{Type: berth.ToolComputer, Name: "Computer", About: "a desktop in a container"}
	for _, c := range []*toolChoice{&web, &pictures, &computer} {
		c.Missing = missing(v, model, c.Type)
	}
	return []toolChoice{
		{Type: berth.ToolShell, Name: "Shell", About: "commands in a container"},
		{Type: berth.ToolCode, Name: "Code interpreter", About: "Python in a container"},
		search, web, pictures, computer,
	}
}

// missing returns why the server does not have a tool for a model; "" if it has. Counting the tokens of a request
// checks its tools like creating a response, and stores nothing.
func missing(v *visit, model, tool string) string {
	err := v.post("/v1/responses/input_tokens", map[string]any{"model": model, "input": "x",
		"tools": []any{map[string]any{"type": tool}}}, &struct{}{})
	f, ok := errors.AsType[*failure](err)
	if !ok || f.Status != http.StatusBadRequest && f.Status != http.StatusNotFound {
		return "" // another reason, which the response itself would report
	}
	return reasonOf(f.Message, tool)
}

// reasonOf returns the first sentence of the API's refusal of a tool, without the name of the tool.
func reasonOf(message, tool string) string {
	reason := strings.TrimPrefix(strings.TrimSpace(message), "Unsupported value: '"+tool+"' ")
	if first, _, more := strings.Cut(reason, ". "); more {
		reason = first + "."
	}
	return clipped(reason, 160)
}

// firstModel returns the model that a form selects: not the one that repeats the task, unless there is no other.
func firstModel(models []string) string {
	for _, m := range models {
		if m != "scripted" {
			return m
		}
	}
	return cmp.Or(slices.Concat(models, []string{""})...)
}
