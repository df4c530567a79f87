// Package websearch is the web_search tool, with which a model searches the web and reads its
// pages.
//
// What a search service or a page says is untrusted. It is bounded, reaches the model as data,
// and pages are read at addresses that the operator allows only.
package websearch

import (
	"context"
	_ "embed"
	"encoding/json"
	"io"
	"log/slog"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/download"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/websearch/backend"
)

//go:embed websearch.md
var description string

//go:embed websearch.json
var parameters json.RawMessage

// name is the function under which a model sees the tool.
const name = berth.ToolWebSearch

// MaxPage is how much of a page is read, in bytes.
const MaxPage = 8 << 20

// Options are what the tool needs of the server.
type Options struct {
	Backend backend.Backend // nil refuses the tool
	Fetcher Fetcher         // of pages; nil opens none

	// Markdown returns the title and the content of a page of HTML. It bounds what a hostile
	// page makes a parser do. Its errors that are *berth.Error are for the model.
	Markdown func(ctx context.Context, address, mediaType string, content io.Reader) (title, markdown string, err error)
	// Text returns the text of another file, by the extension of its name, with the same
	// errors.
	Text func(ctx context.Context, name string, content io.Reader) (string, error)

	Log *slog.Logger
}

// A Fetcher reads pages; *download.Fetcher implements it.
type Fetcher interface {
	Page(ctx context.Context, address string, allow func(host string) bool) (download.Page, error)
}

// A Tool is the web for one response.
type Tool struct {
	opts     Options
	domains  []string // whose pages may be found and opened; empty means all
	location *berth.WebSearchLocation
	size     size
	include  bool // sources are shown
	pages    pageCache
}

var _ tool.Tool = (*Tool)(nil)

// A size is a search_context_size: what one call may show the model.
type size struct {
	results int
	extract int // bytes of the text of a search result
	part    int // bytes of a part of a page
	matches int // of find_in_page
}

var sizes = map[string]size{
	"low":    {results: 5, extract: 600, part: 8 << 10, matches: 5},
	"medium": {results: 10, extract: 1200, part: 16 << 10, matches: 10},
	"high":   {results: 20, extract: 2400, part: 48 << 10, matches: 20},
}

const defaultSize = "medium"

// Spec implements tool.Tool.
func (t *Tool) Spec() tool.Spec {
	text := strings.TrimSpace(description)
	if len(t.domains) > 0 {
		text += "\n\nOnly pages of these domains and their subdomains are found and opened: " + strings.Join(t.domains,
			", ") + "."
	}
	if place := placeOf(t.location); place != "" {
		text += "\n\nThe user is in or near " + place + ". Name the place in queries whose answer depends on it."
	}
	return tool.Spec{Function: tool.Function(name, text, parameters), Call: berth.ItemWebSearchCall}
}

// placeOf returns a location in words, or "".
func placeOf(l *berth.WebSearchLocation) string {
	if l == nil {
		return ""
	}
	var parts []string
	for _, s := range []string{l.City, l.Region, l.Country} {
		if s = strings.Join(strings.Fields(s), " "); s != "" {
			parts = append(parts, s)
		}
	}
	if l.Timezone != "" {
		parts = append(parts, "time zone "+strings.Join(strings.Fields(l.Timezone), " "))
	}
	return strings.Join(parts, ", ")
}

// NewCall implements tool.Tool.
func (t *Tool) NewCall(string) tool.Call {
	return &call{tool: t,
		item: berth.WebSearchCall{ID: berth.NewID(berth.PrefixWebSearch), Type: berth.ItemWebSearchCall,
			Status: string(berth.StatusInProgress)}}
}

// ResumeCall implements tool.Tool. The events of a call do not show its arguments, so the
// model is called again.
func (*Tool) ResumeCall(berth.Item, berth.Item, []berth.Event) (tool.Call, error) { return nil, nil }

// allows reports whether the request allows pages of a host.
func (t *Tool) allows(host string) bool {
	host, ok := canonical(host)
	if len(t.domains) == 0 {
		return true
	}
	for _, d := range t.domains {
		if ok && (host == d || strings.HasSuffix(host, "."+d)) {
			return true
		}
	}
	return false
}
