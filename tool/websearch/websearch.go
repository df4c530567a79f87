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
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

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
	blocked  []string // whose pages may not
	location *berth.WebSearchLocation
	size     size
	include  bool // sources are shown
	pages    pageCache
	limits   berth.WebSearchLimits
	searched atomic.Int64 // searches within the limit
	opened   atomic.Int64 // pages within the limit
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
	if len(t.blocked) > 0 {
		text += "\n\nPages of these domains and their subdomains are not found and not opened: " +
			strings.Join(t.blocked, ", ") + "."
	}
	if place := placeOf(t.location); place != "" {
		text += "\n\nThe user is in or near " + place + ". Name the place in queries whose answer depends on it."
	}
	if l := t.limits; l.Searches != nil {
		text += fmt.Sprintf("\n\nYou can search at most %d times.", *l.Searches)
	}
	if l := t.limits; l.Pages != nil {
		text += fmt.Sprintf("\n\nYou can open pages and search in them at most %d times.", *l.Pages)
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

// use counts a call with an action. It returns why the call is beyond a limit, for the model, or "".
func (t *Tool) use(action string) string {
	limit, used, verb := t.limits.Pages, &t.opened, "open pages"
	if action == berth.WebSearchSearch {
		limit, used, verb = t.limits.Searches, &t.searched, "search"
	}
	switch {
	case limit == nil || used.Add(1) <= int64(*limit):
		return ""
	case *limit == 0:
		return fmt.Sprintf("You cannot %s in this conversation.", verb)
	}
	return fmt.Sprintf("You can %s at most %d times, and have done so. Answer with what you know.", verb, *limit)
}

// allows reports whether the request allows pages of a host.
func (t *Tool) allows(host string) bool {
	host, ok := canonical(host)
	if !ok && len(t.blocked) > 0 || below(host, t.blocked) {
		return false
	}
	return len(t.domains) == 0 || ok && below(host, t.domains)
}

// below reports whether a host is one of some domains, or below one of them.
func below(host string, domains []string) bool {
	return slices.ContainsFunc(domains, func(d string) bool { return host == d || strings.HasSuffix(host, "."+d) })
}
