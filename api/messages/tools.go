package messages

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// offers are the tools of a response.
type offers struct {
	tools  []berth.Tool
	places []string // in the message request, by the index of the tool
}

func (o *offers) add(at string, body any) {
	o.places, o.tools = append(o.places, at), append(o.tools, berth.NewTool(body))
}

// offered returns the tools of the response. h has read the messages.
func (m *messageRequest) offered(h *history) (*offers, error) {
	o, uploads := &offers{}, h.uploads
	if web := m.web(); web != nil {
		o.add(web.at, web.tool)
	}
	code := false
	for i := range m.Tools {
		p, at := &m.Tools[i], fmt.Sprintf("tools[%d]", i)
		if m.hides(p, h.referenced) {
			continue
		}
		var err error
		var body any
		switch p.family() {
		case familySearch, familyFetch:
			if len(p.AllowedDomains) > 0 && len(p.BlockedDomains) > 0 {
				return nil, berth.Invalid(at+".blocked_domains",
					"Only one of 'allowed_domains' and 'blocked_domains' can be specified.")
			}
			continue
		case familyCode:
			if code {
				continue
			}
			code = true
			body, err = m.codeTool(p, uploads)
		case familyToolset:
			body, err = m.toolset(p, at)
		case familyCustom:
			body = p.function(m.searchTool() != nil)
		case familySearchRegex, familySearchBM25:
			if p != m.searchTool() {
				continue
			}
			body = berth.ToolSearchTool{Type: berth.ToolSearch, Execution: berth.ExecutionServer}
		default:
			body, err = p.clientFunction()
		}
		if err != nil {
			return nil, err
		}
		o.add(at, body)
		if shell, ok := body.(berth.ShellTool); ok {
			o.add(at, newEditor(shell.Environment))
		}
	}
	if m.programCaller() != "" {
		o.add("tools", map[string]string{"type": berth.ToolProgrammatic})
	}
	if len(uploads) > 0 && !code {
		return nil, berth.Invalid("messages", "`container_upload` blocks need the tool `code_execution`.")
	}
	for _, s := range m.unnamedServers() {
		o.add(s.at, s.tool)
	}
	return o, nil
}

// A webOffer is the tool that web_search and web_fetch become.
type webOffer struct {
	at   string
	tool berth.WebSearchTool
}

// web returns the tool for the web, or nil if the request has none. A request with web_fetch alone allows no searches.
// One with web_search alone also allows as many pages as searches.
func (m *messageRequest) web() *webOffer {
	var web *webOffer
	uses := map[string]*int{} // the limits, by family
	for i := range m.Tools {
		p := &m.Tools[i]
		f := p.family()
		if f != familySearch && f != familyFetch {
			continue
		}
		if web == nil {
			web = &webOffer{at: fmt.Sprintf("tools[%d]", i), tool: berth.WebSearchTool{Type: berth.ToolWebSearch}}
		}
		web.tool.UserLocation = cmp.Or(web.tool.UserLocation, p.UserLocation)
		if len(p.AllowedDomains) > 0 || len(p.BlockedDomains) > 0 {
			if web.tool.Filters == nil {
				web.tool.Filters = &berth.WebSearchFilters{}
			}
			f := web.tool.Filters
			f.AllowedDomains = append(f.AllowedDomains, p.AllowedDomains...)
			f.BlockedDomains = append(f.BlockedDomains, p.BlockedDomains...)
		}
		uses[f] = p.MaxUses
	}
	if web == nil {
		return nil
	}
	limits := &berth.WebSearchLimits{Searches: uses[familySearch], Pages: uses[familyFetch]}
	if _, ok := uses[familySearch]; !ok {
		limits.Searches = new(int)
	}
	if _, ok := uses[familyFetch]; !ok {
		limits.Pages = uses[familySearch]
	}
	if *limits != (berth.WebSearchLimits{}) {
		web.tool.Limits = limits
	}
	return web
}

// strict reports whether the arguments must fit the schema. Anthropic's schemas may omit what strict mode needs.
func (p *toolParam) strict() *bool {
	var schema map[string]any
	strict := p.Strict != nil && *p.Strict && json.Unmarshal(p.InputSchema, &schema) == nil &&
		berth.StrictProblem(schema) == ""
	return &strict
}

// described returns the description with the examples of the input.
func (p *toolParam) described() string {
	if len(p.InputExamples) == 0 {
		return p.Description
	}
	out := p.Description + "\n\nExamples of the input:"
	for _, e := range p.InputExamples {
		out += "\n" + string(e)
	}
	return out
}

// pythonTool is the first version of code_execution, which runs Python and no shell.
const pythonTool = "code_execution_20250522"

// codeTool returns the tool that code_execution becomes.
func (m *messageRequest) codeTool(p *toolParam, uploads []berth.FileID) (any, error) {
	environment, err := m.environment(uploads)
	if err != nil || p.Type != pythonTool {
		return berth.ShellTool{Type: berth.ToolShell, Environment: environment}, err
	}
	var container any = environment.ContainerID
	if environment.ContainerID == "" {
		if len(environment.Skills) > 0 {
			return nil, berth.Invalid("container.skills", "'%s' has no skills. Use a later version.", pythonTool)
		}
		container = map[string]any{"type": "auto", "file_ids": append([]berth.FileID{}, uploads...)}
	}
	return map[string]any{"type": berth.ToolCode, "container": container}, nil
}

// newEditor returns the text editor beside a shell, in the same container.
func newEditor(shell *berth.ShellToolEnvironment) berth.TextEditorTool {
	return berth.TextEditorTool{Type: berth.ToolTextEditor,
		Environment: &berth.ShellToolEnvironment{Type: shell.Type, ContainerID: shell.ContainerID}}
}

// environment returns the place where code_execution runs.
func (m *messageRequest) environment(uploads []berth.FileID) (*berth.ShellToolEnvironment, error) {
	if m.Container.ID != "" {
		if len(uploads) > 0 {
			return nil, berth.Invalid("container",
				"A `container_upload` block is for a new container. Upload the file to container '%s' with POST /v1/containers/{container}/files.",
				rule.Clip(m.Container.ID))
		}
		return &berth.ShellToolEnvironment{Type: berth.EnvironmentReference,
			ContainerID: berth.ContainerID(m.Container.ID)}, nil
	}
	environment := &berth.ShellToolEnvironment{Type: berth.EnvironmentAuto, FileIDs: uploads}
	var skills []berth.SkillParam
	for i, s := range m.Container.Skills {
		if s.Type != "custom" {
			return nil, berth.Invalid(fmt.Sprintf("container.skills[%d].type", i),
				"This server has no skills of Anthropic. Create one with POST /v1/skills.")
		}
		skills = append(skills, berth.SkillParam{Type: "skill_reference", SkillID: berth.SkillID(s.SkillID),
			Version: s.Version})
	}
	if len(skills) == 0 {
		return environment, nil
	}
	var err error
	environment.Skills, err = json.Marshal(skills)
	return environment, err
}

// A choice is the tool_choice of a response.
type choice struct {
	raw        json.RawMessage // nil is the default
	sequential bool            // one call at a time
}

// choose returns the tool choice of the response. tools is the number of its tools.
func (m *messageRequest) choose(tools int) (choice, error) {
	c := m.ToolChoice
	switch {
	case c == nil, tools == 0 && (c.Type == "none" || c.Type == "auto"):
		return choice{}, nil
	case tools == 0:
		return choice{}, berth.Invalid("tool_choice", "tool_choice may only be specified while providing tools.")
	case c.Type == "any":
		return choice{berth.StringDelta("required"), c.DisableParallel}, nil
	case c.Type != "tool":
		return choice{berth.StringDelta(c.Type), c.DisableParallel}, nil
	}
	i := slices.IndexFunc(m.Tools, func(p toolParam) bool { return p.offeredName() == c.Name })
	if i < 0 {
		return choice{}, berth.Invalid("tool_choice.name", "Tool '%s' not found in provided tools", rule.Clip(c.Name))
	}
	named := map[string]string{"type": berth.ToolFunction, "name": c.Name}
	switch p := &m.Tools[i]; {
	case p.family() == familySearch, p.family() == familyFetch:
		named = map[string]string{"type": berth.ToolWebSearch}
	case p.Type == pythonTool:
		named = map[string]string{"type": berth.ToolCode}
	case p.family() == familyCode:
		named = map[string]string{"type": berth.ToolShell}
	}
	raw, err := json.Marshal(named)
	return choice{raw, c.DisableParallel}, err
}
