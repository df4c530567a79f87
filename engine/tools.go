package engine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// A toolset holds the tools of one response under the names that the model sees.
type toolset struct {
	byName map[string]*boundTool // by function name
	order  []string              // the function names, in the request's order
	named  map[toolRef]string    // the function names, by the reference of a tool_choice
	all    []berth.FunctionTool  // of all tools that the model calls
	specs  []berth.FunctionTool  // of the offered tools
	scope  map[string]bool       // the functions of an allowed_tools; nil means all
	choice model.ToolChoice      // for the first turn
	only   []string              // the functions that the first turn offers; nil means all of specs

	sources []*boundSource
	context []berth.Item // searched for earlier listings of tools

	bound tool.Context // of the tools without a namespace

	deferred bool // the request has tools that a search must find first
	finds    bool // the request has a tool that searches
	found    bool // the tools being added come from the context, not from the request

	grammars int // bytes of the definitions of all grammars
}

// maxGrammars is the number of bytes that the grammars of a response may have together. One
// takes up to 100 ms to compile, and has up to 64 KiB.
const maxGrammars = 1 << 20

// A boundTool is a tool of a response with its kind.
type boundTool struct {
	tool.Tool
	kind    *tool.Kind
	callers tool.Callers
}

// A toolRef is a reference to a tool in a tool_choice.
type toolRef struct {
	Type        string
	Name        string
	Namespace   string // or the label of a source
	ServerLabel string `json:"server_label"` // only in a tool_choice; see chosen
}

// bindTools returns the tools of a response: those of its request and those that the
// items of its context offer. c is without the response.
func bindTools(kinds *tool.Registry, c tool.Context, body *berth.Response, items []berth.Item) (toolset, error) {
	c.Caller.Response, c.Tools = body.ID, body.Tools
	set := toolset{bound: c, byName: map[string]*boundTool{}, named: map[toolRef]string{}, context: items}
	for i, t := range body.Tools {
		if err := set.bind(kinds, c, t); err != nil {
			return set, atTool(err, i)
		}
	}
	if set.deferred && !set.finds {
		return set, berth.Invalid("tools", "Tools with 'defer_loading' need a tool of type 'tool_search' in 'tools'.")
	}
	set.found = true
	for _, it := range items {
		tools, err := kinds.Offered(it)
		if err != nil {
			return set, err
		}
		for _, t := range tools {
			if err := set.bind(kinds, c, t); err != nil {
				return set, err
			}
		}
	}
	if err := set.checkProgrammatic(); err != nil {
		return set, err
	}
	return set, set.choose(kinds, body.ToolChoice)
}

// checkProgrammatic refuses a tool that only programs can call if no tool runs programs: the
// tool could never be called.
func (s *toolset) checkProgrammatic() error {
	hidden := ""
	for _, name := range s.order {
		t := s.byName[name]
		if _, ok := t.Tool.(tool.Programmer); ok {
			return nil
		}
		if !t.callers.Model {
			hidden = name
		}
	}
	if hidden == "" {
		return nil
	}
	return berth.Invalid("tools",
		"Only programs can call '%s', by its 'allowed_callers'. Add a tool of type '%s' to 'tools', or 'direct' to the 'allowed_callers'.",
		hidden, berth.ToolProgrammatic)
}

// bind adds an entry of "tools", or the tools that it groups.
func (s *toolset) bind(kinds *tool.Registry, c tool.Context, t berth.Tool) error {
	if tool.IsDeferred(t) && !s.found {
		s.deferred = true
		return nil
	}
	kind := kinds.Kind(t.Type())
	if kind == nil {
		return berth.Invalid("type", "Tools of type '%s' are not supported.", t.Type())
	}
	if kind.Source != nil {
		source, err := kind.Source(c, t)
		if err != nil {
			return err
		}
		return s.addSource(kind, tool.CallersOf(t), source, s.context)
	}
	if kind.Group == nil {
		bound, err := kind.Bind(c, t)
		if err != nil {
			return err
		}
		return s.add(toolRef{Type: t.Type(), Name: t.Name(), Namespace: c.Namespace}, &boundTool{bound, kind,
			tool.CallersOf(t)})
	}
	namespace, tools, err := kind.Group(t)
	if err != nil {
		return err
	}
	c.Namespace = namespace
	for i, inner := range tools {
		if err := s.bind(kinds, c, inner); err != nil {
			return atTool(err, i)
		}
	}
	return nil
}

// hosted returns the hosted tool with this function name, or nil.
func (s *toolset) hosted(name string) *boundTool {
	t := s.byName[name]
	if t == nil || t.Spec().Client {
		return nil
	}
	return t
}

// add adds a tool. It refuses a second tool of the same name, which a model could not
// distinguish from the first. A tool from the context that is known already is ignored.
func (s *toolset) add(ref toolRef, t *boundTool) error {
	f := t.Spec().Function
	if s.byName[f.Name] != nil && s.found {
		return nil
	}
	if f.Custom != nil && f.Custom.Format != nil {
		if s.grammars += len(f.Custom.Format.Definition); s.grammars > maxGrammars {
			return berth.Invalid("format.definition",
				"The grammars of the tools have more than %d bytes together. Send fewer or smaller grammars.",
				maxGrammars)
		}
	}
	if s.byName[f.Name] != nil {
		at := "name"
		if ref.Name == "" {
			at = ""
		}
		return &berth.Error{Code: berth.CodeInvalid, Wire: "invalid_value", Param: at,
			Message: fmt.Sprintf(
				"Duplicate tool: more than one tool is named '%s'. The names of functions and hosted tools must differ.",
				f.Name)}
	}
	s.byName[f.Name] = t
	s.order = append(s.order, f.Name)
	s.finds = s.finds || t.kind.Calls.Offers != nil
	s.named[ref] = f.Name
	if t.callers.Model {
		s.all = append(s.all, f)
	}
	return nil
}

// replace replaces a tool by one of the same name. Its description may differ.
func (s *toolset) replace(name string, t tool.Tool) {
	s.byName[name].Tool = t
	f := t.Spec().Function
	for _, list := range [][]berth.FunctionTool{s.all, s.specs} {
		for i := range list {
			if list[i].Name == name {
				list[i] = f
			}
		}
	}
}

// choose applies a tool_choice: "none", "auto", "required", one tool, all tools of a
// source, or {"type":"allowed_tools","mode":…,"tools":[…]}. It is repeated when the tools of
// sources have been loaded.
func (s *toolset) choose(kinds *tool.Registry, raw json.RawMessage) error {
	s.specs, s.scope, s.choice, s.only = s.all, nil, model.ToolChoice{}, nil
	var mode string
	if json.Unmarshal(raw, &mode) == nil {
		if mode == "required" && len(s.specs) == 0 && !s.unloaded() {
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
		names, err := s.chosen(kinds, c.toolRef)
		if i := slices.IndexFunc(names, func(name string) bool {
			return !s.byName[name].callers.Model
		}); err == nil && i >= 0 {
			return berth.Invalid("tool_choice", "Tool choice '%s' can be called by programs only. Choose '%s'.",
				names[i], berth.ToolProgrammatic)
		}
		if len(names) == 1 {
			s.choice = model.ToolChoice{Mode: "function", Name: names[0]}
		} else {
			s.choice, s.only = model.ToolChoice{Mode: "required"}, names
		}
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
		names, err := s.chosen(kinds, ref)
		if err != nil {
			return err
		}
		for _, name := range names {
			allowed[name] = true
		}
	}
	s.scope = allowed
	s.specs = slices.DeleteFunc(slices.Clone(s.specs), func(f berth.FunctionTool) bool { return !allowed[f.Name] })
	return nil
}

// chosen returns the function names of the tools that tool_choice refers to: one, or all of
// a source. It returns none for a source whose tools are not known yet.
func (s *toolset) chosen(kinds *tool.Registry, ref toolRef) ([]string, error) {
	if kind := kinds.Kind(ref.Type); kind != nil && kind.Source != nil {
		ref.Namespace = ref.ServerLabel
		if b := s.source(ref.Type, ref.ServerLabel); b != nil && !b.loaded {
			return nil, nil
		}
	}
	ref.ServerLabel = ""
	if name, ok := s.named[ref]; ok {
		return []string{name}, nil
	}
	var names []string
	for _, f := range s.order {
		if ref.Name == "" && ref.Namespace != "" && s.refOf(f) == (toolRef{Type: ref.Type, Namespace: ref.Namespace}) {
			names = append(names, f)
		}
	}
	if len(names) == 0 {
		what := cmp.Or(ref.Name, ref.Namespace, ref.Type)
		return nil, berth.Invalid("tool_choice", "Tool choice '%s' not found in 'tools' parameter.", what)
	}
	return names, nil
}

// refOf returns the reference to a function without its name.
func (s *toolset) refOf(function string) toolRef {
	for ref, name := range s.named {
		if name == function {
			return toolRef{Type: ref.Type, Namespace: ref.Namespace}
		}
	}
	return toolRef{}
}

// callable returns the functions that programs can call.
func (s *toolset) callable() []berth.FunctionTool {
	var out []berth.FunctionTool
	for _, name := range s.order {
		if s.isCallable(name) {
			out = append(out, s.byName[name].Spec().Function)
		}
	}
	return out
}

// isCallable reports whether programs can call a function.
func (s *toolset) isCallable(name string) bool {
	return s.byName[name].callers.Programs && (s.scope == nil || s.scope[name])
}

// advise returns functions whose descriptions include the advice for a model, and the tools
// that programs can call.
func (s toolset) advise(specs []berth.FunctionTool, model string) []berth.FunctionTool {
	out := slices.Clone(specs)
	for i, f := range out {
		t := s.byName[f.Name]
		if t == nil {
			continue
		}
		if p, ok := t.Tool.(tool.Programmer); ok {
			out[i] = p.Offer(s.callable())
		}
		if t.kind.Advice != nil {
			out[i].Description = strings.TrimRight(f.Description, "\n") + "\n" + t.kind.Advice(tool.Family(model))
		}
	}
	return out
}

// A boundSource is a source of a response's tools.
type boundSource struct {
	tool.Source
	kind    *tool.Kind
	callers tool.Callers // of its tools
	loaded  bool         // its tools are in the toolset
}

// addSource adds a source with the tools that items of the context list.
func (s *toolset) addSource(kind *tool.Kind, callers tool.Callers, source tool.Source, items []berth.Item) error {
	if s.source(kind.Type, source.Label()) != nil {
		return &berth.Error{Code: berth.CodeInvalid, Wire: "invalid_value", Param: "server_label",
			Message: fmt.Sprintf(
				"Duplicate tool: more than one tool of type '%s' has the server_label '%s'. Labels must differ.",
				kind.Type, source.Label())}
	}
	b := &boundSource{Source: source, kind: kind, callers: callers}
	s.sources = append(s.sources, b)
	if listed, ok := source.Known(items); ok {
		return s.addListed(b, listed)
	}
	return nil
}

// source returns the source with a label, or nil.
func (s *toolset) source(kind, label string) *boundSource {
	i := slices.IndexFunc(s.sources, func(b *boundSource) bool { return b.kind.Type == kind && b.Label() == label })
	if i < 0 {
		return nil
	}
	return s.sources[i]
}

// addListed adds the tools of a source.
func (s *toolset) addListed(b *boundSource, listed []tool.Listed) error {
	b.loaded = true
	for _, l := range listed {
		if err := s.add(toolRef{Type: b.kind.Type, Name: l.Name, Namespace: b.Label()}, &boundTool{l.Tool, b.kind,
			b.callers}); err != nil {
			return err
		}
	}
	return nil
}

// replaceSource replaces a source and its tools by those of a source of the same label.
func (s *toolset) replaceSource(b *boundSource, source tool.Source, items []berth.Item) {
	b.Source = source
	listed, _ := source.Known(items)
	for _, l := range listed {
		s.byName[l.Tool.Spec().Function.Name].Tool = l.Tool
	}
}

// unloaded reports whether tools of a source are not known yet.
func (s *toolset) unloaded() bool {
	return slices.ContainsFunc(s.sources, func(b *boundSource) bool { return !b.loaded })
}

// close releases what the sources hold.
func (s *toolset) close() {
	for _, b := range s.sources {
		b.Close()
	}
}

// atTool returns an error about a tool with the tool's place in its parameter.
func atTool(err error, i int) error {
	e, ok := errors.AsType[*berth.Error](err)
	if !ok {
		return err
	}
	at := *e
	at.Param = fmt.Sprintf("tools[%d]", i)
	if e.Param != "" {
		at.Param += "." + e.Param
	}
	return &at
}

// isNative reports whether the upstream gets a tool as its own.
func (s *toolset) isNative(function string) bool {
	return slices.ContainsFunc(s.all, func(f berth.FunctionTool) bool { return f.Native != nil && f.Name == function })
}

// setNative lets the transcript leave the calls of the upstream's own tools unchanged.
func (s *toolset) setNative(t *transcript.Transcript) {
	if slices.ContainsFunc(s.all, func(f berth.FunctionTool) bool { return f.Native != nil }) {
		t.Native = s.isNative
	}
}

// offered returns the functions and the tool choice of one turn. A forced choice binds
// the first turn only, or the model could never answer. withheld leaves out hosted tools.
func (s *toolset) offered(first, withheld bool) ([]berth.FunctionTool, model.ToolChoice) {
	specs, choice := s.specs, s.choice
	if !first && choice.Mode != "none" {
		choice = model.ToolChoice{Mode: "auto"}
	}
	if first && s.only != nil {
		specs = slices.DeleteFunc(slices.Clone(specs), func(f berth.FunctionTool) bool {
			return !slices.Contains(s.only, f.Name)
		})
	}
	if withheld {
		hosted := func(name string) bool { return s.hosted(name) != nil }
		specs = slices.DeleteFunc(slices.Clone(specs), func(f berth.FunctionTool) bool { return hosted(f.Name) })
		if choice.Mode == "function" && hosted(choice.Name) || len(specs) == 0 {
			choice = model.ToolChoice{Mode: "auto"}
		}
	}
	return specs, choice
}
