package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

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
			Message: fmt.Sprintf("Duplicate tool: more than one tool of type '%s' has the server_label '%s'. Labels must differ.", kind.Type, source.Label())}
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
		if err := s.add(toolRef{Type: b.kind.Type, Name: l.Name, Namespace: b.Label()}, &boundTool{l.Tool, b.kind, b.callers}); err != nil {
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

// loadSources gets the tools of the sources that the context does not list, and applies the
// tool_choice to them.
func (r *run) loadSources(ctx context.Context) error {
	if !r.tools.unloaded() {
		return nil
	}
	for _, b := range r.tools.sources {
		if b.loaded {
			continue
		}
		listed, err := b.Load(ctx, emitter{w: r.writer, call: -1})
		if err != nil {
			return err
		}
		if err := r.tools.addListed(b, listed); err != nil {
			return err
		}
	}
	return r.tools.choose(r.engine.Tools, r.record.Body.ToolChoice)
}

// begun reports whether the response has output besides the lists of its tools.
func (r *run) begun() bool {
	return slices.ContainsFunc(r.writer.Body().Output, func(it berth.Item) bool { return !r.engine.Tools.IsListing(it) })
}
