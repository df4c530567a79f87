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
	byName map[string]tool.Tool // by function name
	named  map[toolRef]string   // the function names, by what a tool_choice says
	specs  []berth.FunctionTool // all of them, in the request's order
	choice model.ToolChoice     // for the first turn

	deferred bool // some tools of the request wait to be found
	found    bool // what is added was found in the context
}

// A toolRef is how a tool_choice refers to a tool.
type toolRef struct {
	Type      string
	Name      string
	Namespace string
}

// bind makes the tools of a response whose environments are settled: those of its
// request, and those that the items of its context offer.
func (e *Engine) bind(c berth.Caller, body *berth.Response, items []berth.Item) (toolset, error) {
	c.Response = body.ID
	set := toolset{byName: map[string]tool.Tool{}, named: map[toolRef]string{}}
	for i, t := range body.Tools {
		if err := e.bindTool(&set, c, t, ""); err != nil {
			return set, atTool(err, i)
		}
	}
	if set.deferred && set.byName[tool.SearchName] == nil {
		return set, berth.Invalid("tools", "Tools with 'defer_loading' need a tool of type 'tool_search' that finds them.")
	}
	set.found = true
	for _, it := range items {
		tools, err := tool.Found(it)
		if err != nil {
			return set, err
		}
		for _, t := range tools {
			if err := e.bindTool(&set, c, t, ""); err != nil {
				return set, err
			}
		}
	}
	return set, set.choose(body.ToolChoice)
}

// bindTool adds a tool of a request, in a namespace or none: this is the table of
// tools.
func (e *Engine) bindTool(set *toolset, caller berth.Caller, t berth.Tool, namespace string) error {
	ref := toolRef{t.Type(), t.Name(), namespace}
	if waits(t) && !set.found {
		set.deferred = true
		return nil
	}
	switch t.Type() {
	case berth.ToolFunction:
		var f berth.FunctionTool
		if err := t.Decode(&f); err != nil {
			return berth.Invalid("", "Invalid function tool: %v.", err)
		}
		return set.add(ref, tool.NewFunction(f, namespace))
	case berth.ToolCustom:
		var c berth.CustomTool
		if err := t.Decode(&c); err != nil {
			return berth.Invalid("", "Invalid custom tool: %v.", err)
		}
		return set.add(ref, tool.NewCustom(c, namespace))
	case berth.ToolNamespace:
		var n berth.NamespaceTool
		if err := t.Decode(&n); err != nil {
			return berth.Invalid("", "Invalid namespace: %v.", err)
		}
		for i, inner := range n.Tools {
			if err := e.bindTool(set, caller, inner, n.Name); err != nil {
				return atTool(err, i)
			}
		}
		return nil
	case berth.ToolSearch:
		var search berth.ToolSearchTool
		if err := t.Decode(&search); err != nil {
			return berth.Invalid("", "Invalid tool search: %v.", err)
		}
		return set.add(ref, tool.NewSearch(search))
	case berth.ToolShell:
		shell, err := e.bindShell(caller, t)
		if err != nil {
			return err
		}
		return set.add(ref, shell)
	case berth.ToolLocalShell:
		return set.add(ref, tool.LocalShell{})
	case berth.ToolApplyPatch:
		return set.add(ref, tool.ApplyPatch{})
	}
	return berth.Invalid("type", "Tools of type '%s' are not supported.", t.Type())
}

// waits reports whether a tool is shown to the model only once it was found.
func waits(t berth.Tool) bool {
	var tool struct {
		DeferLoading bool `json:"defer_loading"`
	}
	return t.Decode(&tool) == nil && tool.DeferLoading
}

func (e *Engine) bindShell(caller berth.Caller, t berth.Tool) (*tool.Shell, error) {
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
	return tool.NewShell(environment, e.Containers.Shell(caller, shell.Environment.ContainerID), e.Shell), nil
}

// add adds a tool. A model could not tell two of one name apart; one that is found
// again is there already.
func (s *toolset) add(ref toolRef, t tool.Tool) error {
	f := t.Spec().Function
	if s.byName[f.Name] != nil && s.found {
		return nil
	}
	if s.byName[f.Name] != nil {
		at := "name"
		if ref.Name == "" {
			at = ""
		}
		return &berth.Error{Code: berth.CodeInvalid, Wire: "invalid_value", Param: at,
			Message: fmt.Sprintf("Duplicate tool: more than one tool is named '%s'. The names of functions and hosted tools must differ.", f.Name)}
	}
	s.byName[f.Name] = t
	s.named[ref] = f.Name
	s.specs = append(s.specs, f)
	return nil
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
		toolRef
		Mode  string
		Tools []toolRef
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return berth.Invalid("tool_choice", "Invalid value for 'tool_choice': %v.", err)
	}
	if c.Type != "allowed_tools" {
		name, err := s.chosen(c.toolRef)
		s.choice = model.ToolChoice{Mode: "function", Name: name}
		return err
	}
	s.choice.Mode = c.Mode
	allowed := map[string]bool{}
	for _, ref := range c.Tools {
		if ref.Type == berth.ToolNamespace {
			for r, name := range s.named {
				allowed[name] = allowed[name] || r.Namespace == ref.Name
			}
			continue
		}
		name, err := s.chosen(ref)
		if err != nil {
			return err
		}
		allowed[name] = true
	}
	s.specs = slices.DeleteFunc(s.specs, func(f berth.FunctionTool) bool { return !allowed[f.Name] })
	return nil
}

// chosen returns the function name of a tool that tool_choice refers to.
func (s *toolset) chosen(ref toolRef) (string, error) {
	name, ok := s.named[ref]
	if !ok {
		what := ref.Name
		if what == "" {
			what = ref.Type
		}
		return "", berth.Invalid("tool_choice", "Tool choice '%s' not found in 'tools' parameter.", what)
	}
	return name, nil
}

// advise returns functions with what a model needs to be told of them.
func (s toolset) advise(specs []berth.FunctionTool, model string) []berth.FunctionTool {
	out := slices.Clone(specs)
	for i, f := range out {
		out[i] = tool.Advise(s.byName[f.Name], model)
	}
	return out
}

// hostedTool returns the tool that runs a call here, or nil.
func (r *run) hostedTool(it berth.Item) tool.Tool {
	t := r.tools.byName[tool.Name(it)]
	if t == nil || t.Spec().Client || t.Spec().Call != it.Type() {
		return nil
	}
	return t
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
		hosted := func(name string) bool { t := r.tools.byName[name]; return t != nil && !t.Spec().Client }
		specs = slices.DeleteFunc(slices.Clone(specs), func(f berth.FunctionTool) bool { return hosted(f.Name) })
		if choice.Mode == "function" && hosted(choice.Name) || len(specs) == 0 {
			choice = model.ToolChoice{Mode: "auto"}
		}
	}
	return specs, choice
}
