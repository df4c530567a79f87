package engine

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// A toolset is the tools of one response, as the model may call them.
type toolset struct {
	hosted    map[string]tool.Tool // by function name
	functions map[string]bool      // the client's own
	specs     []berth.FunctionTool // all of them, in the request's order
	choice    model.ToolChoice     // for the first turn
}

// bind makes the tools of a response whose environments are settled: this is the
// table of hosted tools.
func (e *Engine) bind(p berth.ProjectID, body *berth.Response) (toolset, error) {
	set := toolset{hosted: map[string]tool.Tool{}, functions: map[string]bool{}}
	for i, t := range body.Tools {
		switch t.Type() {
		case berth.ToolFunction:
			var f berth.FunctionTool
			if err := t.Decode(&f); err != nil {
				return set, berth.Invalid(fmt.Sprintf("tools[%d]", i), "Invalid function tool: %v.", err)
			}
			set.functions[f.Name] = true
			set.specs = append(set.specs, f)
		case berth.ToolShell:
			shell, err := e.bindShell(p, t)
			if err != nil {
				return set, err
			}
			set.add(shell)
		default:
			return set, berth.Invalid(fmt.Sprintf("tools[%d].type", i), "Tools of type '%s' are not supported.", t.Type())
		}
	}
	return set, set.choose(body.ToolChoice)
}

func (e *Engine) bindShell(p berth.ProjectID, t berth.Tool) (*tool.Shell, error) {
	var shell berth.ShellTool
	if err := t.Decode(&shell); err != nil {
		return nil, err
	}
	if shell.Environment == nil {
		return tool.NewShell(nil, nil, e.Shell), nil
	}
	environment := &berth.ShellEnvironment{Type: shell.Environment.Type, ContainerID: shell.Environment.ContainerID}
	if shell.Environment.Type == berth.EnvironmentLocal {
		return tool.NewShell(environment, nil, e.Shell), nil
	}
	return tool.NewShell(environment, e.Containers.Shell(p, shell.Environment.ContainerID), e.Shell), nil
}

func (s *toolset) add(t tool.Tool) {
	spec, strict := t.Spec(), false
	s.hosted[spec.Name] = t
	s.specs = append(s.specs, berth.FunctionTool{Type: berth.ToolFunction, Name: spec.Name,
		Description: spec.Description, Parameters: spec.Parameters, Strict: &strict})
}

// choose reads a tool_choice: "none", "auto", "required", one tool, or
// {"type":"allowed_tools","mode":…,"tools":[…]}.
func (s *toolset) choose(raw json.RawMessage) error {
	var mode string
	if json.Unmarshal(raw, &mode) == nil {
		s.choice.Mode = mode
		return nil
	}
	var c struct {
		Type, Name, Mode string
		Tools            []struct{ Type, Name string }
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return berth.Invalid("tool_choice", "Invalid value for 'tool_choice': %v.", err)
	}
	if c.Type != "allowed_tools" {
		name := toolName(c.Type, c.Name)
		if s.hosted[name] == nil && !s.functions[name] {
			return berth.Invalid("tool_choice", "Tool choice '%s' not found in 'tools' parameter.", name)
		}
		s.choice = model.ToolChoice{Mode: "function", Name: name}
		return nil
	}
	s.choice.Mode = c.Mode
	allowed := map[string]bool{}
	for _, t := range c.Tools {
		allowed[toolName(t.Type, t.Name)] = true
	}
	s.specs = slices.DeleteFunc(s.specs, func(f berth.FunctionTool) bool { return !allowed[f.Name] })
	return nil
}

// toolName is the function name of a tool that tool_choice refers to.
func toolName(kind, name string) string {
	if kind == berth.ToolShell {
		return tool.ShellName
	}
	return name
}

// hostedTool returns the tool that runs a call here, or nil.
func (r *run) hostedTool(it berth.Item) tool.Tool {
	if it.Type() != berth.ItemShellCall {
		return nil
	}
	if t := r.tools.hosted[tool.ShellName]; t != nil && !t.Spec().Client {
		return t
	}
	return nil
}

// offered returns the functions of one turn and how the model must choose. A
// choice that was forced binds the first turn only: forced for ever, it would
// never let the model answer.
func (r *run) offered(first bool) ([]berth.FunctionTool, model.ToolChoice) {
	specs, choice := r.tools.specs, r.tools.choice
	if !first && choice.Mode != "none" {
		choice = model.ToolChoice{Mode: "auto"}
	}
	if r.withheld() {
		specs = slices.DeleteFunc(slices.Clone(specs), func(f berth.FunctionTool) bool { return r.tools.hosted[f.Name] != nil })
		if choice.Mode == "function" && r.tools.hosted[choice.Name] != nil || len(specs) == 0 {
			choice = model.ToolChoice{Mode: "auto"}
		}
	}
	return specs, choice
}
