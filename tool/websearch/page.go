package websearch

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"mime"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// maxText bounds the text of a page, in bytes.
const maxText = 2 << 20

// A page is a page as the model reads it.
type page struct {
	url   string // after redirects
	title string
	text  string
}

// A pageCache holds the last pages of a response: a model opens one, turns its parts, and
// searches in it. It is safe for concurrent use.
type pageCache struct {
	mu    sync.Mutex
	pages map[string]*page // by the URL that the model wrote
	order []string
}

// cachedPages bounds a pageCache.
const cachedPages = 4

func (c *pageCache) get(address string) *page {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pages[address]
}

func (c *pageCache) put(address string, p *page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pages == nil {
		c.pages = map[string]*page{}
	}
	if c.pages[address] == nil {
		c.order = append(c.order, address)
	}
	c.pages[address] = p
	if len(c.order) > cachedPages {
		delete(c.pages, c.order[0])
		c.order = c.order[1:]
	}
}

// formats are the extensions under which Options.Text reads files, by their media types.
// Those that begin with text are read as text.
var formats = map[string]string{
	"application/pdf": ".pdf", "application/json": ".txt", "application/xml": ".txt", "application/rss+xml": ".txt",
	"application/atom+xml": ".txt",
	"application/ld+json":  ".txt", "application/yaml": ".txt", "application/javascript": ".txt",
	"application/vnd.openxmlformats-officedocument.wordprocessingml.document":   ".docx",
	"application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
	"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet":         ".xlsx",
}

// read returns the page at an address.
func (t *Tool) read(ctx context.Context, address string) (*page, error) {
	if p := t.pages.get(address); p != nil {
		return p, nil
	}
	if t.opts.Fetcher == nil {
		return nil, berth.Invalid("",
			"The page could not be opened: this server opens no pages. Use the results of searches.")
	}
	got, err := t.opts.Fetcher.Page(ctx, address, t.allows)
	if err != nil {
		return nil, err
	}
	kind, _, err := mime.ParseMediaType(got.MediaType)
	if err != nil {
		kind = "text/html"
	}
	p := &page{url: got.URL}
	format := formats[kind]
	switch {
	case kind == "text/html" || kind == "application/xhtml+xml":
		p.title, p.text, err = t.opts.Markdown(ctx, got.URL, got.MediaType, bytes.NewReader(got.Content))
	case format != "" || strings.HasPrefix(kind, "text/"):
		p.text, err = t.opts.Text(ctx, "page"+cmp.Or(format, ".txt"), bytes.NewReader(got.Content))
	default:
		return nil, berth.Invalid("", "The page could not be opened: it is of type '%s', which has no text to read.",
			tool.Shorten(kind, 100))
	}
	if err != nil {
		return nil, fmt.Errorf("read page: %w", err)
	}
	p.text = strings.ToValidUTF8(p.text, "\ufffd")
	p.text = strings.TrimSpace(p.text[:cutAt(p.text, maxText)])
	p.title = tool.Shorten(cmp.Or(strings.ToValidUTF8(p.title, ""), lastElement(p.url)), 300)
	t.pages.put(address, p)
	return p, nil
}

// lastElement returns a title for a page without one.
func lastElement(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	if name := u.Path[strings.LastIndexByte(u.Path, '/')+1:]; name != "" {
		return name
	}
	return u.Hostname()
}

// cutAt returns where to cut a text that has more than most bytes: after a line if one ends
// in the last quarter, or else after a character.
func cutAt(s string, most int) int {
	if len(s) <= most {
		return len(s)
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	if line := strings.LastIndexByte(s[:most], '\n'); line >= most*3/4 {
		return line + 1
	}
	return most
}

// open returns a part of a page.
func (t *Tool) open(ctx context.Context, address string, number int) (*berth.WebSearchBerth, error) {
	p, err := t.read(ctx, address)
	if err != nil {
		return nil, err
	}
	found := &berth.WebSearchBerth{Page: number}
	for rest := p.text; rest != "" || found.Pages == 0; {
		n := cutAt(rest, t.size.part)
		if found.Pages++; found.Pages == number {
			found.Results = []berth.WebSearchResult{{URL: p.url, Title: p.title, Text: rest[:n]}}
		}
		rest = rest[n:]
	}
	if found.Results == nil {
		return nil, berth.Invalid("", "The page has only %d parts. Open one of those.", found.Pages)
	}
	return found, nil
}

// around is how much of a page is shown on each side of a match, in bytes.
const around = 300

// findIn returns the places of a page with a pattern, case and white space aside.
func (t *Tool) findIn(ctx context.Context, address, pattern string) (*berth.WebSearchBerth, error) {
	p, err := t.read(ctx, address)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(pattern)
	for i, w := range words {
		words[i] = regexp.QuoteMeta(w)
	}
	matcher, err := regexp.Compile("(?i)" + strings.Join(words, "[\\s*_`]+")) // words may be in bold, for example
	if err != nil {
		return nil, fmt.Errorf("compile pattern: %w", err)
	}
	found := &berth.WebSearchBerth{}
	end := 0 // of the last place
	for at := 0; len(found.Results) < t.size.matches; {
		m := matcher.FindStringIndex(p.text[at:])
		if m == nil {
			break
		}
		start, stop := max(end, at+m[0]-around), min(len(p.text), at+m[1]+around)
		for start > 0 && !utf8.RuneStart(p.text[start]) {
			start--
		}
		for stop < len(p.text) && !utf8.RuneStart(p.text[stop]) {
			stop++
		}
		found.Results = append(found.Results, berth.WebSearchResult{URL: p.url, Title: p.title,
			Text: strings.TrimSpace(p.text[start:stop])})
		at, end = stop, stop
	}
	return found, nil
}
