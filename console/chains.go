package console

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
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
	Cost *berth.Cost `json:"cost"` // nil without a price
}

// A chain is a row of the list: a response, and those before it that the list has read.
type chain struct {
	Last      *summary
	First     berth.ResponseID // the oldest that was read
	Title     string           // the first words of the user in First
	Responses int
	Tokens    int
	Cost      *berth.Cost // nil if no response has a price
}

// A chainsPage is the list of chains.
type chainsPage struct {
	Chains []chain
	Status string // the filter; "" shows all
	Model  string // the filter; "" shows all
	Search string // the filter; "" shows all
	Events string // path of the list's states; "" if the list is not followed
	Next   string // path of the next page; "" at the end
}

// Statuses returns the values of the filter.
func (chainsPage) Statuses() []berth.Status {
	return []berth.Status{berth.StatusQueued, berth.StatusInProgress, berth.StatusCompleted, berth.StatusIncomplete,
		berth.StatusFailed, berth.StatusCancelled}
}

// show serves GET /console/responses: chains of responses, the newest first. With an
// id it opens the response.
func (p *chainsPage) show(v *visit) error {
	if id := strings.TrimSpace(v.r.URL.Query().Get("id")); id != "" {
		return v.redirect("/console/responses/" + url.PathEscape(id))
	}
	if err := p.read(v, map[berth.ResponseID]string{}); err != nil {
		return err
	}
	return v.show(http.StatusOK, "chains", "Responses", p)
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
	query := url.Values{}
	for _, name := range []string{"status", "model", "search"} {
		if value := strings.TrimSpace(asked.Get(name)); value != "" {
			query.Set(name, value)
		}
	}
	*p = chainsPage{Status: query.Get("status"), Model: query.Get("model"), Search: query.Get("search")}
	if asked.Get("after") == "" && p.Search == "" {
		p.Events = "/console/responses/events?" + query.Encode()
	}
	read := url.Values{"limit": {chainsRead}, "order": {"desc"}}
	for name, values := range query {
		read[name] = values
	}
	if after := asked.Get("after"); after != "" {
		read.Set("after", after)
	}
	found, err := readSummaries(v, read, p.Search != "")
	if err != nil {
		return err
	}
	if found.HasMore {
		query.Set("after", found.LastID)
		p.Next = "/console/responses?" + query.Encode()
	}
	p.Chains = chainsOf(found.Data)
	for i := range p.Chains {
		first := p.Chains[i].First
		if _, ok := titles[first]; !ok {
			title, err := readTitle(v, first)
			if err != nil {
				return err
			}
			titles[first] = title
		}
		p.Chains[i].Title = titles[first]
	}
	return nil
}

// readSummaries reads a page of the list. A search reads further pages until it has found some
// responses, or has read searchPages.
func readSummaries(v *visit, query url.Values, search bool) (*list[*summary], error) {
	var all list[*summary]
	pages := 1
	if search {
		pages = searchPages
		query.Set("limit", "100")
	}
	for range pages {
		var found list[*summary]
		if err := v.get("/v1/responses?"+query.Encode(), &found); err != nil {
			return nil, err
		}
		all.Data, all.HasMore, all.LastID = append(all.Data, found.Data...), found.HasMore, found.LastID
		if !found.HasMore || len(all.Data) >= searchEnough {
			break
		}
		query.Set("after", found.LastID)
	}
	return &all, nil
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
