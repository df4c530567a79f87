package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// A toolset is the tools of one response, as the model may call them.
type toolset struct {
	byName map[string]*boundTool // by function name
	order  []string              // the function names, in the request's order
	named  map[toolRef]string    // the function names, by how a tool_choice names them
	specs  []berth.FunctionTool  // of those that are offered
	choice model.ToolChoice      // for the first turn

	deferred bool // some tools of the request wait to be found
	finds    bool // one of them finds others
	found    bool // tools that are added were found in the context
}

// A boundTool is a tool with its kind.
type boundTool struct {
	tool.Tool
	kind *tool.Kind
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
	set := toolset{byName: map[string]*boundTool{}, named: map[toolRef]string{}}
	for i, t := range body.Tools {
		if err := e.bindTool(&set, tool.Context{Caller: c}, t); err != nil {
			return set, atTool(err, i)
		}
	}
	if set.deferred && !set.finds {
		return set, berth.Invalid("tools", "Tools with 'defer_loading' need a tool of type 'tool_search' that finds them.")
	}
	set.found = true
	for _, it := range items {
		tools, err := e.Tools.Offered(it)
		if err != nil {
			return set, err
		}
		for _, t := range tools {
			if err := e.bindTool(&set, tool.Context{Caller: c}, t); err != nil {
				return set, err
			}
		}
	}
	return set, set.choose(e.Tools, body.ToolChoice)
}

// bindTool adds a tool of a request, or those that it groups.
func (e *Engine) bindTool(set *toolset, c tool.Context, t berth.Tool) error {
	if waits(t) && !set.found {
		set.deferred = true
		return nil
	}
	kind := e.Tools.Kind(t.Type())
	if kind == nil {
		return berth.Invalid("type", "Tools of type '%s' are not supported.", t.Type())
	}
	if kind.Group == nil {
		bound, err := kind.Bind(c, t)
		if err != nil {
			return err
		}
		return set.add(toolRef{t.Type(), t.Name(), c.Namespace}, &boundTool{bound, kind})
	}
	namespace, tools, err := kind.Group(t)
	if err != nil {
		return err
	}
	c.Namespace = namespace
	for i, inner := range tools {
		if err := e.bindTool(set, c, inner); err != nil {
			return atTool(err, i)
		}
	}
	return nil
}

// waits reports whether a tool is shown to the model only once it was found.
func waits(t berth.Tool) bool {
	var tool struct {
		DeferLoading bool `json:"defer_loading"`
	}
	return t.Decode(&tool) == nil && tool.DeferLoading
}

// hosted returns the tool of a function that runs its calls on the server, or nil.
func (s *toolset) hosted(name string) *boundTool {
	t := s.byName[name]
	if t == nil || t.Spec().Client {
		return nil
	}
	return t
}

// add adds a tool. It refuses two of one name, which a model could not distinguish,
// unless the second is one that was found again.
func (s *toolset) add(ref toolRef, t *boundTool) error {
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
	s.order = append(s.order, f.Name)
	s.finds = s.finds || t.kind.Calls.Offers != nil
	s.named[ref] = f.Name
	s.specs = append(s.specs, f)
	return nil
}

// choose reads a tool_choice: "none", "auto", "required", one tool, or
// {"type":"allowed_tools","mode":…,"tools":[…]}.
func (s *toolset) choose(kinds *tool.Registry, raw json.RawMessage) error {
	var mode string
	if json.Unmarshal(raw, &mode) == nil {
		if mode == "required" && len(s.specs) == 0 {
			return berth.Invalid("tool_choice", "Tool choice 'required' must be specified with 'tools' parameter.")
		}
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
		if kind := kinds.Kind(ref.Type); kind != nil && kind.Group != nil {
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

// advise returns functions with the advice for a model.
func (s toolset) advise(specs []berth.FunctionTool, model string) []berth.FunctionTool {
	out := slices.Clone(specs)
	for i, f := range out {
		if t := s.byName[f.Name]; t != nil && t.kind.Advice != nil {
			out[i].Description = strings.TrimRight(f.Description, "\n") + "\n" + t.kind.Advice(tool.Family(model))
		}
	}
	return out
}

// hostedTool returns the tool that runs a call here, or nil.
func (r *run) hostedTool(it berth.Item) tool.Tool {
	t := r.tools.hosted(r.engine.Tools.Name(it))
	if t == nil || t.Spec().Call != it.Type() {
		return nil
	}
	return t.Tool
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
		hosted := func(name string) bool { return r.tools.hosted(name) != nil }
		specs = slices.DeleteFunc(slices.Clone(specs), func(f berth.FunctionTool) bool { return hosted(f.Name) })
		if choice.Mode == "function" && hosted(choice.Name) || len(specs) == 0 {
			choice = model.ToolChoice{Mode: "auto"}
		}
	}
	return specs, choice
}
