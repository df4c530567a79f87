package search

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// An entry is a tool that the model does not see yet, or a namespace of such tools.
type entry struct {
	path  string     // by which the model names it
	about string     // what the model is shown of it
	tool  berth.Tool // as the output of a search has it
	words string     // in lower case, for searches by words
}

// deferred returns the entries of a request's tools, in their order: deferred tools, and
// namespaces with deferred tools.
func deferred(tools []berth.Tool) ([]entry, error) {
	var entries []entry
	for _, t := range tools {
		if t.Type() != berth.ToolNamespace {
			if tool.IsDeferred(t) {
				entries = append(entries, newEntry(t.Name(), describe(t), t))
			}
			continue
		}
		n, err := tool.Decode[berth.NamespaceTool](t, "namespace")
		if err != nil {
			return nil, err
		}
		n.Tools = slices.DeleteFunc(n.Tools, func(inner berth.Tool) bool { return !tool.IsDeferred(inner) })
		if len(n.Tools) == 0 {
			continue
		}
		about := n.Description + " Its tools:"
		for _, inner := range n.Tools {
			about += "\n  - " + inner.Name() + ": " + describe(inner)
		}
		entries = append(entries, newEntry(n.Name, about, berth.NewTool(n)))
	}
	return entries, nil
}

func newEntry(path, about string, t berth.Tool) entry {
	return entry{path: path, about: about, tool: t, words: strings.ToLower(path + " " + about)}
}

// maxAbout bounds what the model is shown of a tool before it is found, in bytes.
const maxAbout = 300

// describe returns the first paragraph of a tool's description.
func describe(t berth.Tool) string {
	var d struct {
		Description string `json:"description"`
	}
	if t.Decode(&d) != nil {
		return ""
	}
	first, _, _ := strings.Cut(strings.TrimSpace(d.Description), "\n\n")
	return tool.Shorten(strings.Join(strings.Fields(first), " "), maxAbout)
}

// catalogue returns the part of the description that lists the entries.
func catalogue(entries []entry) string {
	var text strings.Builder
	text.WriteString("\n\nThe tools by path:\n")
	for _, e := range entries {
		fmt.Fprintf(&text, "- %s: %s\n", e.path, e.about)
	}
	return strings.TrimRight(text.String(), "\n")
}

// find returns the tools of paths, in the order of the request. A path is that of an entry,
// or of a tool in a namespace. One that names no tool is taken as words to search for.
func find(entries []entry, paths []string) []berth.Tool {
	var found []berth.Tool
	for _, e := range entries {
		if slices.ContainsFunc(paths, func(p string) bool { return e.named(p) }) {
			found = append(found, e.tool)
		}
	}
	if len(found) > 0 {
		return found
	}
	for _, e := range entries {
		if slices.ContainsFunc(paths, func(p string) bool { return e.matches(p) }) {
			found = append(found, e.tool)
		}
	}
	return found
}

// named reports whether a path names the entry or a tool in its namespace.
func (e *entry) named(path string) bool {
	path = strings.TrimSpace(path)
	if path == e.path {
		return true
	}
	inner, ok := strings.CutPrefix(path, e.path)
	if !ok || e.tool.Type() != berth.ToolNamespace {
		return false
	}
	var n berth.NamespaceTool
	inner = strings.TrimLeft(inner, "._/")
	return e.tool.Decode(&n) == nil && slices.ContainsFunc(n.Tools, func(t berth.Tool) bool {
		return t.Name() == inner
	})
}

// matches reports whether the entry has a word of at least four letters of a text.
func (e *entry) matches(text string) bool {
	return slices.ContainsFunc(strings.Fields(strings.ToLower(text)), func(word string) bool {
		return len(word) >= 4 && strings.Contains(e.words, word)
	})
}
