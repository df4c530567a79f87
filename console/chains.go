package console

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
)

const (
	chainsRead    = "50"            // responses that a page of the list reads, at most
	chainsRefresh = 2 * time.Second // least time between two states of a list that is followed
	chainsShare   = 20              // a list is read for at most this fraction (1/20) of the time
	searchPages   = 10              // of 100 responses, that a search reads at most
	searchEnough  = 20              // responses, after which a search reads no further page
)

// A summary is a response in the API's list.
type summary struct {
	berth.Response
	Cost *berth.Cost `json:"cost"`       // nil without a price
	Key  string      `json:"api_key_id"` // that created it
}

// A chain is a row of the list: a response, and those before it that the list has read.
type chain struct {
	Last      *summary
	First     berth.ResponseID // the oldest that was read
	Title     string           // the first words of the user in First
	Responses int
	Tokens    int
	Cost      *berth.Cost // nil if no response has a price
	Waiting   bool        // Last waits for approval
}

// State returns the state of the chain, for a badge.
func (c chain) State() string {
	if c.Waiting {
		return "waiting"
	}
	return string(c.Last.Status)
}

// Path returns the path of the chain's page, at the last response.
func (c chain) Path() string {
	path := "/console/responses/" + url.PathEscape(string(c.Last.ID))
	if c.Responses > 1 {
		path += "#latest"
	}
	return path
}

// Took returns how long the last response took; "" while it runs. The list knows seconds.
func (c chain) Took() string {
	switch {
	case c.Last.CompletedAt == nil:
		return ""
	case *c.Last.CompletedAt <= c.Last.CreatedAt:
		return "< 1 s"
	}
	return took((*c.Last.CompletedAt - c.Last.CreatedAt) * 1000)
}

// seconds returns how long the last response took, or has run so far.
func (c chain) seconds() int64 {
	switch {
	case c.Last.CompletedAt != nil:
		return *c.Last.CompletedAt - c.Last.CreatedAt
	case c.Runs():
		return time.Now().Unix() - c.Last.CreatedAt
	}
	return 0
}

// Runs reports whether the last response runs. The list does not know when one ended that did not complete.
func (c chain) Runs() bool { return !c.Last.Status.Final() }

// A chainsPage is the list of chains.
type chainsPage struct {
	Chains []chain
	Status string // the filter; "" shows all, and waiting those that wait for approval
	Model  string // the filter; "" shows all
	Search string // the filter; "" shows all
	Range  string // the filter: the name of a span; "" shows all
	Tag    string // the filter: NAME:VALUE of the metadata; "" shows all
	Key    string // the filter: id of the key that created them; "" shows all
	KeyIs  string // what others see of Key
	Tool   string // the filter: a tool that was called; "" shows all
	Sort   string // cost, tokens or duration, the largest first; "" is the time
	Cut    bool   // sorted, but older runs were not read
	Open   berth.ResponseID
	Run    *responsePage // the open one, beside the list
	Title  string        // of Run
	Events string        // path of the list's states; "" if the list is not followed
	Next   string        // path of the next page; "" at the end
}

// A mark is a filter that is set, and what a page shows of it.
type mark struct{ Name, Value, Label string }

// A chip is a value of a filter.
type chip struct {
	Label, Path string
	Here        bool
}

// spans are the values of the filter of time.
var spans = []struct {
	name, label string
	span        time.Duration
}{{"1h", "1 hour", time.Hour}, {"24h", "24 hours", 24 * time.Hour}, {"7d", "7 days", 7 * 24 * time.Hour},
	{"30d", "30 days", 30 * 24 * time.Hour}}

// path returns the path of the list with one filter changed.
func (p chainsPage) path(name, value string) string {
	query := p.query()
	query.Del(name)
	if value != "" {
		query.Set(name, value)
	}
	if len(query) == 0 {
		return "/console/responses"
	}
	return "/console/responses?" + query.Encode()
}

// query returns the filters.
func (p chainsPage) query() url.Values {
	query := url.Values{}
	for name, value := range map[string]string{"status": p.Status, "model": p.Model, "search": p.Search,
		"range": p.Range, "tag": p.Tag, "key": p.Key, "tool": p.Tool, "sort": p.Sort} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// Statuses returns the chips of the filter by state.
func (p chainsPage) Statuses() []chip {
	chips := []chip{{"All", p.path("status", ""), p.Status == ""}}
	for _, status := range []string{"waiting", string(berth.StatusInProgress), string(berth.StatusQueued),
		string(berth.StatusCompleted), string(berth.StatusFailed), string(berth.StatusIncomplete),
		string(berth.StatusCancelled)} {
		chips = append(chips, chip{badgeOf(status).Label, p.path("status", status), p.Status == status})
	}
	return chips
}

// Ranges returns the chips of the filter by time.
func (p chainsPage) Ranges() []chip {
	chips := []chip{{"Any time", p.path("range", ""), p.Range == ""}}
	for _, s := range spans {
		chips = append(chips, chip{s.label, p.path("range", s.name), p.Range == s.name})
	}
	if span := rangeOf(p.Range); span > 0 && !slices.ContainsFunc(chips, func(c chip) bool { return c.Here }) {
		chips = append(chips, chip{age(span), p.path("range", p.Range), true})
	}
	return chips
}

// Filtered reports whether a filter is set.
func (p chainsPage) Filtered() bool {
	query := p.query()
	query.Del("sort")
	return len(query) > 0
}

// Marks returns the chips of filters that other pages set, which lead to the list without them.
func (p chainsPage) Marks() (marks []mark) {
	for _, m := range []mark{{"tag", p.Tag, p.Tag}, {"key", p.Key, p.KeyIs}, {"tool", p.Tool, p.Tool}} {
		if m.Value != "" {
			marks = append(marks, m)
		}
	}
	return marks
}

// Without returns the path of the list without a filter.
func (p chainsPage) Without(name string) string { return p.path(name, "") }

// List returns the path of the list, without an open run.
func (p chainsPage) List() string { return p.path("", "") }

// since returns the time of the oldest response that the filter shows; the zero time shows all.
func (p chainsPage) since() time.Time {
	if span := rangeOf(p.Range); span > 0 {
		return time.Now().Add(-span)
	}
	return time.Time{}
}

// show serves GET /console/responses: chains of responses, the newest first. With an
// id it opens the response.
func (p *chainsPage) show(v *visit) error {
	asked := v.r.URL.Query()
	if id := strings.TrimSpace(asked.Get("id")); id != "" {
		return v.redirect("/console/responses/" + url.PathEscape(id))
	}
	if words := strings.TrimSpace(asked.Get("search")); strings.HasPrefix(words, berth.PrefixResponse) {
		return v.redirect("/console/responses/" + url.PathEscape(words))
	}
	if err := p.read(v, map[berth.ResponseID]string{}); err != nil {
		return err
	}
	if p.Open = berth.ResponseID(asked.Get("open")); p.Open != "" {
		v.r.SetPathValue("response", string(p.Open))
		p.Run = &responsePage{}
		if err := p.Run.read(v); err != nil {
			return err
		}
		p.Run.Drawer = p.List()
		p.Title = title(p.Run.Turns)
	}
	return v.show(http.StatusOK, "chains", "Runs", p)
}

// follow serves GET /console/responses/events: the first page of the list, each time
// it has changed. The API does not report that, so the list is read again and again.
func (p *chainsPage) follow(v *visit) error {
	titles := map[berth.ResponseID]string{}
	started := time.Now()
	err := p.read(v, titles)
	if err != nil {
		return err
	}
	out := newLiveWriter(v)
	var last []byte
	for sent := time.Now(); ; {
		var b bytes.Buffer
		if err := templates().ExecuteTemplate(&b, "chainlist", p); err != nil {
			return out.failed(err)
		}
		switch {
		case !bytes.Equal(b.Bytes(), last):
			err, last, sent = out.send("show", b.Bytes()), b.Bytes(), time.Now()
		case time.Since(sent) > quiet:
			err, sent = out.comment(), time.Now()
		}
		if err != nil {
			return nil // the browser is gone
		}
		select {
		case <-time.After(max(chainsRefresh, chainsShare*time.Since(started))):
		case <-v.r.Context().Done():
			return nil
		}
		started = time.Now()
		if err = p.read(v, titles); err != nil {
			return nil // the browser reconnects and gets the reason
		}
	}
}

// read reads the page of the list that the query of the visit asks for. It adds the
// titles that are missing to titles.
func (p *chainsPage) read(v *visit, titles map[berth.ResponseID]string) error {
	asked := v.r.URL.Query()
	field := func(name string) string { return strings.TrimSpace(asked.Get(name)) }
	*p = chainsPage{Status: field("status"), Model: field("model"), Search: field("search"), Range: field("range"),
		Tag: field("tag"), Key: field("key"), Tool: field("tool"), Open: berth.ResponseID(field("open"))}
	if slices.Contains(sorts, field("sort")) {
		p.Sort = field("sort")
	}
	query := p.query()
	if asked.Get("after") == "" && p.Search+p.Tag+p.Tool+p.Key+p.Sort == "" {
		shown := p.query()
		if p.Open != "" {
			shown.Set("open", string(p.Open)) // each event draws the list anew
		}
		p.Events = "/console/responses/events?" + shown.Encode()
	}
	read := url.Values{"limit": {chainsRead}, "order": {"desc"}}
	for name, of := range map[string]string{"status": "status", "model": "model", "search": "search", "after": "after",
		"tool": "tool", "key": "api_key_id"} {
		if value := field(name); value != "" && !(name == "status" && value == "waiting") {
			read.Set(of, value)
		}
	}
	waiting, err := readWaiting(v)
	if err != nil {
		return err
	}
	calls, err := readCalls(v)
	if err != nil {
		return err
	}
	n := len(waiting) + len(calls)
	v.waiting = &n
	var found list[*summary]
	if p.Status == "waiting" { // they are among the latest responses
		for _, s := range waiting {
			if (p.Model == "" || s.Model == p.Model) && (p.Key == "" || s.Key == p.Key) && p.Tool == "" &&
				tagged(s, p.Tag) {
				found.Data = append(found.Data, s)
			}
		}
	} else {
		all, err := readSummaries(v, read, p.reach())
		if err != nil {
			return err
		}
		found = *all
	}
	if p.KeyIs = short(p.Key); slices.ContainsFunc(found.Data, func(s *summary) bool { return s.Key == p.Key }) {
		p.KeyIs = v.nameOf(p.Key) // the API has shown it to the visitor
	}
	if since := p.since(); !since.IsZero() {
		found.Data = slices.DeleteFunc(found.Data, func(s *summary) bool {
			old := s.CreatedAt < since.Unix()
			found.HasMore = found.HasMore && !old
			return old
		})
	}
	if p.Cut = found.HasMore && p.Sort != ""; found.HasMore && !p.Cut {
		query.Set("after", found.LastID)
		p.Next = "/console/responses?" + query.Encode()
	}
	p.Chains = chainsOf(found.Data)
	if p.Sort != "" {
		p.sort()
	}
	markWaiting(p.Chains, waiting)
	return addChainTitles(v, p.Chains, titles)
}

// markWaiting marks the chains whose last response waits for approval.
func markWaiting(chains []chain, waiting []*summary) {
	for i := range chains {
		chains[i].Waiting = slices.ContainsFunc(waiting, func(s *summary) bool { return s.ID == chains[i].Last.ID })
	}
}

// addChainTitles sets the titles of chains. It adds those that are missing to titles.
func addChainTitles(v *visit, chains []chain, titles map[berth.ResponseID]string) error {
	for i := range chains {
		first := chains[i].First
		if _, ok := titles[first]; !ok {
			title, err := readTitle(v, first)
			if err != nil {
				return err
			}
			titles[first] = title
		}
		chains[i].Title = titles[first]
	}
	return nil
}

// tagged reports whether the metadata of a response have a tag, NAME:VALUE; "" is any.
func tagged(s *summary, tag string) bool {
	for name, value := range s.Metadata {
		if name+":"+value == tag {
			return true
		}
	}
	return tag == ""
}

// readTitle returns the first words of the user in a response.
func readTitle(v *visit, id berth.ResponseID) (string, error) {
	var input list[berth.Item]
	err := v.get("/v1/responses/"+url.PathEscape(string(id))+"/input_items?order=asc&limit=5", &input)
	if f, ok := errors.AsType[*failure](err); ok && f.Status == http.StatusNotFound {
		return "Deleted response", nil // since the list was read
	}
	if err != nil {
		return "", err
	}
	return title([]*turnView{{Input: entriesOf(input.Data)}}), nil
}

// maxBack is the number of responses of a chain that are read to find its title.
const maxBack = 20

// readRunTitle returns the last words of the user in a response, or in one before it: a response that answers an
// approval has none.
func readRunTitle(v *visit, id berth.ResponseID) (string, error) {
	for range maxBack {
		title, err := readTitle(v, id)
		if err != nil || title != noTitle {
			return title, err
		}
		var r berth.Response
		err = v.get("/v1/responses/"+url.PathEscape(string(id)), &r)
		if refused(err) || err == nil && r.PreviousResponseID == nil {
			break
		}
		if err != nil {
			return "", err
		}
		id = *r.PreviousResponseID
	}
	return noTitle, nil
}

// chainsOf returns the chains of responses, in the order of their last responses. A response
// from which several others go on is in the chain of each.
func chainsOf(found []*summary) []chain {
	byID := map[berth.ResponseID]*summary{}
	continued := map[berth.ResponseID]bool{}
	for _, s := range found {
		byID[s.ID] = s
		if s.PreviousResponseID != nil {
			continued[*s.PreviousResponseID] = true
		}
	}
	var chains []chain
	for _, last := range found {
		if continued[last.ID] {
			continue
		}
		c := chain{Last: last}
		for s := last; s != nil && c.Responses < len(found); { // an imported chain may be a circle
			c.add(s)
			if s.PreviousResponseID == nil {
				break
			}
			s = byID[*s.PreviousResponseID]
		}
		chains = append(chains, c)
	}
	return chains
}

// add adds the response before the first.
func (c *chain) add(s *summary) {
	c.First = s.ID
	c.Responses++
	if s.Usage != nil {
		c.Tokens += s.Usage.TotalTokens
	}
	if s.Cost == nil {
		return
	}
	if c.Cost == nil {
		c.Cost = &berth.Cost{Currency: s.Cost.Currency}
	}
	c.Cost.Value += s.Cost.Value
}
