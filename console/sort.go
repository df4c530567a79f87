package console

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rangeOf returns the span of the filter of time with a name; 0 for none. Pages lead here with any number of days.
func rangeOf(name string) time.Duration {
	for _, s := range spans {
		if s.name == name {
			return s.span
		}
	}
	const most = 365
	number, ok := strings.CutSuffix(name, "d")
	if days, err := strconv.Atoi(number); ok && err == nil && days > 0 && days <= most {
		return time.Duration(days) * 24 * time.Hour
	}
	return 0
}

// sorts are the values of the order of runs.
var sorts = []string{"cost", "tokens", "duration"}

// A sortLink is the heading of a column that sorts by it.
type sortLink struct {
	Label, Path string
	Here        bool
}

// SortBy returns the heading of a column.
func (p chainsPage) SortBy(name, label string) sortLink {
	if p.Sort == name {
		return sortLink{label, p.path("sort", ""), true}
	}
	return sortLink{label, p.path("sort", name), false}
}

// sort orders the chains by what the visitor chose.
func (p *chainsPage) sort() {
	by := map[string]func(c chain) int64{
		"cost": func(c chain) int64 {
			if c.Cost == nil {
				return -1
			}
			return int64(c.Cost.Value)
		},
		"tokens":   func(c chain) int64 { return int64(c.Tokens) },
		"duration": func(c chain) int64 { return c.seconds() },
	}[p.Sort]
	slices.SortStableFunc(p.Chains, func(a, b chain) int { return cmp.Compare(by(b), by(a)) })
	p.Chains = p.Chains[:min(len(p.Chains), mostRows)]
}

// A reach is how far a list is read.
type reach struct {
	search bool      // further pages until some responses are found
	all    bool      // all pages since a time
	since  time.Time // the zero time is the beginning
	tag    string    // that responses have
}

// reach returns how far the list is read.
func (p *chainsPage) reach() reach {
	return reach{search: p.Search+p.Tag+p.Tool+p.Key != "", all: p.Sort != "", since: p.since(), tag: p.Tag}
}

// readSummaries reads a page of the list. A search for words or for a tag reads further pages until it has found some
// responses, and a sorted list those of its time; both read at most searchPages.
func readSummaries(v *visit, query url.Values, to reach) (*list[*summary], error) {
	var all list[*summary]
	pages := 1
	if to.search || to.all {
		pages = searchPages
		query.Set("limit", "100")
	}
	for range pages {
		var found list[*summary]
		if err := v.get("/v1/responses?"+query.Encode(), &found); err != nil {
			return nil, err
		}
		all.HasMore, all.LastID = found.HasMore, found.LastID
		for _, s := range found.Data {
			if tagged(s, to.tag) {
				all.Data = append(all.Data, s)
			}
		}
		if !found.HasMore || !to.all && len(all.Data) >= searchEnough {
			break
		}
		if last := found.Data; to.all && len(last) > 0 && last[len(last)-1].CreatedAt < to.since.Unix() {
			all.HasMore = false
			break
		}
		query.Set("after", found.LastID)
	}
	return &all, nil
}
