package console

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/berth-run/berth"
)

const (
	branchPages  = 20 // of 100 responses, among which branches are found
	branchTitles = 50 // branches whose first words are shown
	branchDepth  = 40 // of the tree; deeper branches are shown at this depth
)

// A branchesPage is the page of the branches of a chain.
type branchesPage struct {
	ID    berth.ResponseID // of the response from which the page was opened
	Roots []*branch
	More  bool // there are older responses, which were not read
}

// A branch is a run of responses without a fork, and the branches that fork from its last one.
type branch struct {
	Responses []*summary // the oldest first
	Title     string     // the first words of the user; "" if they were not read
	Here      bool       // it has the response of the page
	Branches  []*branch
}

// First returns the oldest response of the branch.
func (b *branch) First() *summary { return b.Responses[0] }

// Last returns the latest response of the branch.
func (b *branch) Last() *summary { return b.Responses[len(b.Responses)-1] }

// Tokens returns the tokens of all responses of the branch.
func (b *branch) Tokens() (sum int) {
	for _, s := range b.Responses {
		if s.Usage != nil {
			sum += s.Usage.TotalTokens
		}
	}
	return sum
}

// show serves GET /console/responses/{response}/branches.
func (p *branchesPage) show(v *visit) error {
	id := berth.ResponseID(v.r.PathValue("response"))
	if err := v.get("/v1/responses/"+url.PathEscape(string(id)), &struct{}{}); err != nil {
		return err
	}
	var all []*summary
	query := url.Values{"limit": {"100"}, "order": {"desc"}}
	*p = branchesPage{ID: id}
	for range branchPages {
		var found list[*summary]
		if err := v.get("/v1/responses?"+query.Encode(), &found); err != nil {
			return err
		}
		all = append(all, found.Data...)
		if p.More = found.HasMore; !p.More {
			break
		}
		query.Set("after", found.LastID)
	}
	p.Roots = branchesOf(all, id)
	titles := 0
	if err := addTitles(v, p.Roots, &titles); err != nil {
		return err
	}
	return v.show(http.StatusOK, "branches", "Branches", p)
}

// addTitles adds titles to branches until there are branchTitles.
func addTitles(v *visit, branches []*branch, n *int) error {
	for _, b := range branches {
		if *n++; *n > branchTitles {
			return nil
		}
		var err error
		if b.Title, err = readTitle(v, b.First().ID); err != nil {
			return err
		}
		if err := addTitles(v, b.Branches, n); err != nil {
			return err
		}
	}
	return nil
}

// branchesOf returns the tree of responses that are connected with one by previous_response_id. There are
// several roots if the first response is not among all, or was deleted.
func branchesOf(all []*summary, id berth.ResponseID) []*branch {
	byID := map[berth.ResponseID]*summary{}
	next := map[berth.ResponseID][]*summary{}
	for _, s := range all {
		byID[s.ID] = s
	}
	for _, s := range slices.Backward(all) { // the oldest first
		if s.PreviousResponseID != nil {
			next[*s.PreviousResponseID] = append(next[*s.PreviousResponseID], s)
		}
	}
	root := id
	seen := map[berth.ResponseID]bool{} // an imported chain may be a circle
	for s := byID[root]; s != nil && s.PreviousResponseID != nil && !seen[s.ID]; s = byID[root] {
		seen[s.ID] = true
		root = *s.PreviousResponseID
	}
	grown := map[berth.ResponseID]bool{}
	if s := byID[root]; s != nil {
		return []*branch{grow(s, id, next, grown, 0)}
	}
	var roots []*branch
	for _, s := range next[root] { // the first one is missing
		roots = append(roots, grow(s, id, next, grown, 0))
	}
	return roots
}

// grow returns the branch that starts with a response.
func grow(s *summary, id berth.ResponseID, next map[berth.ResponseID][]*summary, grown map[berth.ResponseID]bool,
	depth int) *branch {
	b := &branch{}
	for {
		grown[s.ID] = true
		b.Responses = append(b.Responses, s)
		b.Here = b.Here || s.ID == id
		after := slices.DeleteFunc(slices.Clone(next[s.ID]), func(n *summary) bool { return grown[n.ID] })
		if len(after) != 1 {
			for _, n := range after {
				of := grow(n, id, next, grown, depth+1)
				b.Branches = append(b.Branches, of)
				if depth >= branchDepth {
					b.Branches, of.Branches = append(b.Branches, of.Branches...), nil
				}
			}
			return b
		}
		s = after[0]
	}
}
