package websearch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/websearch/backend"
)

// Limits of what a model may write.
const (
	maxQueries = 5
	maxQuery   = 1000 // characters
	maxPattern = 300  // characters
	maxURL     = 2 << 10
)

// callArguments are the arguments of a call.
type callArguments struct {
	Type    string   `json:"type"`
	Queries []string `json:"queries,omitempty"`
	Query   string   `json:"query,omitempty"` // models sometimes write one
	URL     string   `json:"url,omitempty"`
	Page    float64  `json:"page,omitempty"` // checked to be a part's number
	Pattern string   `json:"pattern,omitempty"`
}

// A call is one action on the web. Its item holds what it found.
type call struct {
	tool    *Tool
	item    berth.WebSearchCall
	started bool // the event of its start was returned
	args    callArguments
	invalid string // why the call is not made
	code    string // of the reason
}

func (c *call) Item() berth.Item { return berth.NewItem(c.item) }

func (c *call) event(t berth.EventType) berth.Event {
	return berth.Event{Type: t, ItemID: c.item.ID}
}

func (c *call) Write(string) []berth.Event {
	if c.started {
		return nil
	}
	c.started = true
	return []berth.Event{c.event(berth.EventWebSearchInProgress)}
}

func (c *call) Close(arguments string) ([]berth.Event, berth.Item, string) {
	err := json.Unmarshal([]byte(arguments), &c.args)
	a := &c.args
	if a.Query != "" {
		a.Queries = append(a.Queries, a.Query)
	}
	a.Queries = slices.DeleteFunc(a.Queries, func(q string) bool { return strings.TrimSpace(q) == "" })
	a.URL = strings.TrimSpace(a.URL)
	if a.Type == "" {
		a.Type = map[bool]string{true: berth.WebSearchSearch, false: berth.WebSearchOpen}[a.URL == ""]
		if a.Pattern != "" {
			a.Type = berth.WebSearchFind
		}
	}
	if err != nil {
		c.invalid, a.Type = "The arguments of this call are not valid: "+invalidity(
			err)+". Nothing was done. Send the call again with valid arguments.", berth.WebSearchSearch
	} else {
		c.invalid = a.problem()
	}
	if c.code = berth.WebSearchInvalid; c.invalid == "" {
		c.invalid, c.code = c.tool.use(a.Type), berth.WebSearchLimited
	}
	return c.Write(""), c.Item(), ""
}

// invalidity returns why arguments cannot be decoded.
func invalidity(err error) string {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return "they are not JSON"
	case wrong.Field == "":
		return "they are not a JSON object"
	case wrong.Field == "page":
		return pageRange
	case wrong.Field == "queries":
		return `"queries" must be a list of strings`
	}
	return fmt.Sprintf("%q must be a string", wrong.Field)
}

// maxParts bounds the number of a page's part that a call may name.
const maxParts = 10_000

var pageRange = fmt.Sprintf(`"page" must be a whole number from 1 to %d`, maxParts)

// problem returns the fault of the arguments, for the model, or "". It sets what is
// absent.
func (a *callArguments) problem() string {
	if a.Page == 0 {
		a.Page = 1
	}
	const zero = "\x00"
	if strings.Contains(a.URL+a.Pattern+strings.Join(a.Queries, ""), zero) {
		return "An argument of this call contains the NUL character (U+0000). Send it without."
	}
	switch a.Type {
	case berth.WebSearchSearch:
		return a.searchProblem()
	case berth.WebSearchOpen, berth.WebSearchFind:
		return a.pageProblem()
	}
	own := a.Type
	a.Type = berth.WebSearchSearch // the items of a call show one of the three
	return fmt.Sprintf(`The type %q is unknown. Use "search", "open_page" or "find_in_page".`, tool.Shorten(own, 64))
}

func (a *callArguments) searchProblem() string {
	switch {
	case len(a.Queries) == 0:
		return `This call has no query. Give a list of them in "queries".`
	case len(a.Queries) > maxQueries:
		return fmt.Sprintf("This call has %d queries. Send at most %d.", len(a.Queries), maxQueries)
	case slices.ContainsFunc(a.Queries, func(q string) bool { return utf8.RuneCountInString(q) > maxQuery }):
		return fmt.Sprintf("A query has more than %d characters. Send a shorter one.", maxQuery)
	}
	return ""
}

func (a *callArguments) pageProblem() string {
	u, err := url.Parse(a.URL)
	switch {
	case len(a.URL) > maxURL:
		return fmt.Sprintf(
			`The "url" has %d bytes. Pages with a URL of up to %d bytes can be opened. Choose another page.`,
			len(a.URL), maxURL)
	case a.URL == "" || err != nil || u.Host == "":
		return `This call needs the http or https URL of a page in "url".`
	case a.Type == berth.WebSearchOpen && (a.Page < 1 || a.Page > maxParts || a.Page != float64(int(a.Page))):
		return pageRange + "."
	case a.Type == berth.WebSearchFind && strings.TrimSpace(a.Pattern) == "":
		return `This call needs the text to find in "pattern".`
	case a.Type == berth.WebSearchFind && utf8.RuneCountInString(a.Pattern) > maxPattern:
		return fmt.Sprintf(`The "pattern" has more than %d characters. Send a shorter one.`, maxPattern)
	}
	return ""
}

// Run does what the call says. What the model got wrong, and what the web did not give, is
// output.
func (c *call) Run(ctx context.Context, out tool.Emitter) error {
	if err := out.Emit(ctx, out.Call(), c.event(berth.EventWebSearchSearching)); err != nil {
		return err
	}
	c.item.Action = c.action()
	found, err := c.find(ctx)
	if err != nil {
		return err
	}
	c.item.Berth, c.item.Status = found, string(berth.StatusCompleted)
	if found.Error != "" {
		c.item.Status = string(berth.StatusFailed)
		return out.Done(ctx, out.Call(), c.Item())
	}
	if c.tool.include && c.item.Action.Type == berth.WebSearchSearch {
		for _, r := range found.Results {
			c.item.Action.Sources = append(c.item.Action.Sources, berth.WebSearchSource{Type: "url", URL: r.URL})
		}
	}
	if err := out.Emit(ctx, out.Call(), c.event(berth.EventWebSearchCompleted)); err != nil {
		return err
	}
	return out.Done(ctx, out.Call(), c.Item())
}

// action returns what the wire shows of the arguments.
func (c *call) action() *berth.WebSearchAction {
	a := &berth.WebSearchAction{Type: c.args.Type}
	if c.invalid != "" && a.Type == berth.WebSearchFind {
		a.Type = berth.WebSearchOpen // which the wire shows without a pattern, and without a URL
	}
	switch a.Type {
	case berth.WebSearchSearch:
		if a.Queries = c.args.Queries; len(a.Queries) > 0 {
			a.Query = a.Queries[0]
		}
	case berth.WebSearchFind:
		a.Pattern = c.args.Pattern
		fallthrough
	case berth.WebSearchOpen:
		a.URL = c.args.URL
	}
	return a
}

// find returns what the call found, or in Error why it found nothing. An error ends the
// response.
func (c *call) find(ctx context.Context) (*berth.WebSearchBerth, error) {
	if c.invalid != "" {
		return &berth.WebSearchBerth{Error: c.invalid, Code: c.code}, nil
	}
	var found *berth.WebSearchBerth
	var err error
	switch c.args.Type {
	case berth.WebSearchSearch:
		found, err = c.tool.search(ctx, c.args.Queries)
	case berth.WebSearchOpen:
		found, err = c.tool.open(ctx, c.args.URL, int(c.args.Page))
	default:
		found, err = c.tool.findIn(ctx, c.args.URL, c.args.Pattern)
	}
	if err == nil {
		return found, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	reason := "It failed for a reason that the server's log has."
	failure, failed := errors.AsType[backend.Failure](err)
	own, known := errors.AsType[*berth.Error](err)
	switch {
	case failed:
		reason = string(failure)
		c.tool.log().Warn("search service failed", "err", err)
	case known:
		reason = own.Message
	default:
		c.tool.log().Error("failed to search the web", "action", c.args.Type, "err", err)
	}
	return &berth.WebSearchBerth{Error: reason}, nil
}

func (t *Tool) log() *slog.Logger {
	return cmp.Or(t.opts.Log, slog.Default())
}

// search returns the results of all queries, the best of each first. It fails if all
// queries do.
func (t *Tool) search(ctx context.Context, queries []string) (*berth.WebSearchBerth, error) {
	var lists [][]berth.WebSearchResult
	var failed error
	for _, q := range queries {
		list, err := t.opts.Backend.Search(ctx, backend.Query{Text: q, Limit: t.size.results, Domains: t.domains,
			Location: t.location})
		if err != nil {
			failed = err
			continue
		}
		lists = append(lists, list)
	}
	if len(lists) == 0 {
		return nil, failed
	}
	found := &berth.WebSearchBerth{}
	seen := map[string]bool{}
	for i := 0; slices.ContainsFunc(lists, func(l []berth.WebSearchResult) bool { return i < len(l) }); i++ {
		for _, l := range lists {
			if i >= len(l) || seen[l[i].URL] || len(found.Results) == t.size.results {
				continue
			}
			seen[l[i].URL] = true
			if u, err := url.Parse(l[i].URL); err != nil || !t.allows(u.Hostname()) {
				continue
			}
			r := l[i]
			r.Text = tool.Shorten(r.Text, t.size.extract)
			found.Results = append(found.Results, r)
		}
	}
	return found, nil
}
