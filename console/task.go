package console

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
)

// A task is what the user has entered into the form of a new response.
type task struct {
	Model        string
	Text         string
	Instructions string
	Effort       string   // of reasoning; "" is the model's default
	Temperature  string   // "" is the model's default
	Tools        []string // selected
	Approve      bool     // commands wait for approval
	Store        string   // that file search reads

	// Of the container.
	Hosts      string // that it may reach
	Template   string // "" is the server's default
	Memory     string // limit; "" is the server's default
	SkillIDs   []string
	SecretName string // of a secret that it may send to SecretHost and never sees
	SecretHost string

	MCPLabel string // of an MCP server; "" for none
	MCPURL   string

	Checks   string // commands, one in each line, that must succeed before the response ends
	MaxTurns string // limits; "" are the server's
	MaxTime  string // seconds
	MaxCost  string

	secret string            // never shown again
	used   berth.ContainerID // of the response that the form repeats; "" if none
}

// taskOf returns what the form of a visit has.
func taskOf(v *visit) task {
	in := v.form.fields
	word := func(name string) string { return strings.TrimSpace(in.Get(name)) }
	return task{Model: in.Get("model"), Text: v.text("text"), Instructions: v.text("instructions"),
		Effort: in.Get("effort"), Temperature: word("temperature"), Tools: in["tool"],
		Approve: in.Get("approve") != "", Store: in.Get("store"), Hosts: in.Get("hosts"), Template: in.Get("template"),
		Memory: in.Get("memory"), SkillIDs: in["skill"], SecretName: word("secret-name"),
		SecretHost: word("secret-host"), MCPLabel: word("mcp-label"), MCPURL: word("mcp-url"),
		Checks: v.text("checks"), MaxTurns: word("max-turns"), MaxTime: word("max-seconds"), MaxCost: word("max-cost"),
		secret: in.Get("secret")}
}

// Chosen reports whether a tool is selected.
func (t task) Chosen(tool string) bool { return slices.Contains(t.Tools, tool) }

// HasSkill reports whether a skill is selected.
func (t task) HasSkill(id berth.SkillID) bool { return slices.Contains(t.SkillIDs, string(id)) }

// More reports whether a field that the form hides at first has a value.
func (t task) More() bool {
	return t.Instructions+t.Effort+t.Temperature+t.Checks+t.MaxTurns+t.MaxTime+t.MaxCost != ""
}

// OfContainer reports whether a field of the container that the form hides at first has a value.
func (t task) OfContainer() bool {
	return t.Template+t.Memory+t.SecretName+t.SecretHost != "" || len(t.SkillIDs) > 0
}

// request returns the body of POST /v1/responses. The files are in the container, or if there is
// none, in the input.
func (t task) request(files []berth.FileID) map[string]any {
	req := map[string]any{"model": t.Model, "input": t.Text}
	if text := strings.TrimSpace(t.Instructions); text != "" {
		req["instructions"] = text
	}
	if t.Effort != "" {
		req["reasoning"] = map[string]any{"effort": t.Effort}
	}
	if t.Temperature != "" {
		req["temperature"] = number(t.Temperature)
	}
	extension := map[string]any{}
	tools, contained := t.tools(files)
	if t.Approve && t.Chosen(berth.ToolShell) {
		extension["require_approval"] = "always"
	}
	if commands := linesOf(t.Checks); len(commands) > 0 {
		extension["checks"] = map[string]any{"commands": commands}
	}
	if limits := t.limits(); len(limits) > 0 {
		extension["budget"] = limits
	}
	if len(extension) > 0 {
		req["berth"] = extension
	}
	if tools != nil {
		req["tools"] = tools
	}
	if len(files) > 0 && !contained {
		parts := []any{map[string]any{"type": "input_text", "text": t.Text}}
		for _, id := range files {
			parts = append(parts, map[string]any{"type": "input_file", "file_id": id})
		}
		req["input"] = []any{map[string]any{"role": "user", "content": parts}}
	}
	return req
}

// tools returns the tools of the request, and whether one has a container.
func (t task) tools(files []berth.FileID) (tools []any, contained bool) {
	container := t.container(files)
	for _, tool := range t.Tools {
		entry := map[string]any{"type": tool}
		switch tool {
		case berth.ToolShell:
			entry["environment"] = with(container, "type", "container_auto")
			contained = true
		case berth.ToolCode:
			own := maps.Clone(container)
			delete(own, "skills") // only the shell's container takes them
			entry["container"] = with(own, "type", "auto")
			contained = true
		case berth.ToolFileSearch:
			entry["vector_store_ids"] = []string{t.Store}
		}
		tools = append(tools, entry)
	}
	if t.MCPLabel != "" || t.MCPURL != "" {
		tools = append(tools, map[string]any{"type": berth.ToolMCP, "server_label": t.MCPLabel,
			"server_url": t.MCPURL})
	}
	return tools, contained
}

// container returns the settings of the container.
func (t task) container(files []berth.FileID) map[string]any {
	container := map[string]any{}
	if len(files) > 0 {
		container["file_ids"] = files
	}
	hosts := strings.FieldsFunc(t.Hosts, func(r rune) bool { return strings.ContainsRune(", \n\r\t", r) })
	policy := berth.NetworkPolicy{Type: "allowlist", AllowedDomains: hosts}
	if t.SecretName != "" || t.SecretHost != "" {
		policy.DomainSecrets = []berth.DomainSecret{{Domain: t.SecretHost, Name: t.SecretName, Value: t.secret}}
		if !slices.Contains(hosts, t.SecretHost) {
			policy.AllowedDomains = append(policy.AllowedDomains, t.SecretHost)
		}
	}
	if len(policy.AllowedDomains) > 0 {
		container["network_policy"] = policy
	}
	if t.Memory != "" {
		container["memory_limit"] = t.Memory
	}
	if t.Template != "" {
		container["berth"] = map[string]any{"template": t.Template}
	}
	var skills []any
	for _, id := range t.SkillIDs {
		skills = append(skills, map[string]any{"type": berth.SkillReference, "skill_id": id})
	}
	if skills != nil {
		container["skills"] = skills
	}
	return container
}

// limits returns the budget of the request.
func (t task) limits() map[string]any {
	limits := map[string]any{}
	for name, value := range map[string]string{"max_turns": t.MaxTurns, "max_seconds": t.MaxTime,
		"max_cost": t.MaxCost} {
		if value != "" {
			limits[name] = number(value)
		}
	}
	return limits
}

// number returns a number that the user has written, or the text, which the API refuses with a reason.
func number(text string) any {
	if _, err := strconv.ParseFloat(text, 64); err == nil && json.Valid([]byte(text)) {
		return json.Number(text)
	}
	return text
}

// linesOf returns the lines of a text that are not empty.
func linesOf(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// with returns an object with one more field.
func with(fields map[string]any, name string, value any) map[string]any {
	out := maps.Clone(fields)
	out[name] = value
	return out
}

// taskOfTurn returns what a response was asked for. Secrets are not stored, so they are missing.
func taskOfTurn(turn *turnView) task {
	t := task{Model: turn.Model}
	if text := textOf(turn.Instructions); !strings.HasPrefix(text, "[") {
		t.Instructions = text
	}
	for _, e := range turn.Input {
		if e.Role() == "user" {
			t.Text = e.Text()
		}
	}
	if turn.Reasoning.Effort != nil {
		t.Effort = *turn.Reasoning.Effort
	}
	for _, tool := range turn.Tools {
		t.add(tool)
	}
	return t
}

// add adds a tool of a response.
func (t *task) add(tool berth.Tool) {
	var of struct {
		Environment    *berth.ShellToolEnvironment `json:"environment"`
		Container      json.RawMessage             `json:"container"`
		VectorStoreIDs []string                    `json:"vector_store_ids"`
		ServerLabel    string                      `json:"server_label"`
		ServerURL      string                      `json:"server_url"`
	}
	_ = tool.Decode(&of) // what fits is copied
	if tool.Type() == berth.ToolMCP {
		t.MCPLabel, t.MCPURL = of.ServerLabel, of.ServerURL
		return
	}
	t.Tools = append(t.Tools, tool.Type())
	if len(of.VectorStoreIDs) > 0 {
		t.Store = of.VectorStoreIDs[0]
	}
	environment := of.Environment
	if environment == nil {
		environment = &berth.ShellToolEnvironment{}
		if json.Unmarshal(of.Container, &environment.ContainerID) != nil {
			_ = json.Unmarshal(of.Container, environment) // what fits is copied
		}
	}
	t.used = cmp.Or(environment.ContainerID, t.used)
	if environment.MemoryLimit != "" {
		t.Memory = environment.MemoryLimit
	}
	if environment.NetworkPolicy != nil {
		t.Hosts = strings.Join(environment.NetworkPolicy.AllowedDomains, " ")
	}
	if environment.Berth != nil {
		t.Template = environment.Berth.Template
	}
	var skills []berth.SkillParam
	_ = json.Unmarshal(environment.Skills, &skills) // none if they have another form
	for _, s := range skills {
		if s.SkillID != "" {
			t.SkillIDs = append(t.SkillIDs, string(s.SkillID))
		}
	}
}

// addContainer adds the settings of the container that a response used.
func (t *task) addContainer(c berth.Container, templates []berth.Template) {
	t.Memory = c.MemoryLimit
	t.Hosts = strings.Join(c.NetworkPolicy.AllowedDomains, " ")
	for _, s := range c.Berth.Skills {
		if s.SkillID != "" {
			t.SkillIDs = append(t.SkillIDs, string(s.SkillID))
		}
	}
	for _, of := range templates {
		if of.ID == c.Berth.Template && len(of.Names) > 0 {
			t.Template = of.Names[0]
		}
	}
}
