package console

import (
	"net/url"

	"github.com/berth-run/berth"
)

// runCosts are the costs of responses, which a page reads once.
type runCosts struct {
	known map[berth.ResponseID]*berth.Cost // nil for those without a price
	left  int                              // responses that may be read one by one
}

// maxCosts is the number of responses of which a page reads the cost one by one, beside those of the latest list.
const maxCosts = 100

// readCosts reads the costs of the latest 100 responses.
func readCosts(v *visit) (*runCosts, error) {
	c := &runCosts{map[berth.ResponseID]*berth.Cost{}, maxCosts}
	var latest list[*summary]
	if err := v.get("/v1/responses?order=desc&limit=100", &latest); err != nil {
		return nil, err
	}
	for _, s := range latest.Data {
		c.known[s.ID] = s.Cost
	}
	return c, nil
}

// of returns the cost of the responses whose commands are in the log of a container; nil if it has none with a price,
// or more responses than may be read.
func (c *runCosts) of(v *visit, log []berth.ContainerLog) (sum *berth.Cost, err error) {
	counted := map[berth.ResponseID]bool{}
	for _, l := range log {
		if l.ResponseID == "" || counted[l.ResponseID] {
			continue
		}
		counted[l.ResponseID] = true
		spent, ok := c.known[l.ResponseID]
		if !ok {
			if c.left--; c.left < 0 {
				return nil, nil
			}
			if spent, err = readCost(v, l.ResponseID); err != nil {
				return nil, err
			}
			c.known[l.ResponseID] = spent
		}
		if spent == nil {
			continue
		}
		if sum == nil {
			sum = &berth.Cost{Currency: spent.Currency}
		}
		sum.Value += spent.Value
	}
	return sum, nil
}

// readCost returns the cost of a response; nil without a price, or if it was deleted.
func readCost(v *visit, id berth.ResponseID) (*berth.Cost, error) {
	var r berth.Response
	if err := v.get("/v1/responses/"+url.PathEscape(string(id)), &r); err != nil {
		if refused(err) {
			err = nil
		}
		return nil, err
	}
	return cost(&r), nil
}
