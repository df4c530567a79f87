package berth

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// An Amount is money in billionths of a currency's unit, so that sums of the prices
// of single tokens are exact. It marshals to a decimal number of units.
type Amount int64

// unit is one of a currency's unit.
const unit = 1e9

// String returns the amount as a decimal number: 0.0125.
func (a Amount) String() string {
	sign, n := "", uint64(a)
	if a < 0 {
		sign, n = "-", -n
	}
	whole, rest := n/unit, n%unit
	if rest == 0 {
		return fmt.Sprintf("%s%d", sign, whole)
	}
	return fmt.Sprintf("%s%d.%s", sign, whole, strings.TrimRight(fmt.Sprintf("%09d", rest), "0"))
}

// ParseAmount reads a decimal number of units, such as 1.25, and rounds it to
// billionths. An amount that is not a number, or beyond a billion units, is an error.
func ParseAmount(text string) (Amount, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f <= unit && f >= -unit) {
		return 0, fmt.Errorf("%q is not an amount of money", text)
	}
	if f < 0 {
		return Amount(f*unit - 0.5), nil
	}
	return Amount(f*unit + 0.5), nil
}

// MarshalJSON writes a number.
func (a Amount) MarshalJSON() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalJSON reads a number.
func (a *Amount) UnmarshalJSON(b []byte) (err error) {
	*a, err = ParseAmount(string(bytes.TrimSpace(b)))
	return err
}

// A Cost is what something costs.
type Cost struct {
	Value    Amount `json:"value"`
	Currency string `json:"currency"` // its ISO 4217 code in lower case
}

// UpstreamUsage is what the turns of a response used of one model of one upstream.
type UpstreamUsage struct {
	Upstream string `json:"upstream"` // its name in the server's configuration
	Model    string `json:"model"`    // what the upstream calls it
	Turns    int    `json:"turns"`
	Usage
	Cost *Cost `json:"cost,omitempty"` // nil without a price of the model
}

// ResponseBerth is what Berth tells of a response beyond OpenAI's contract.
type ResponseBerth struct {
	Template string `json:"template,omitempty"` // digest of what the container lies above that its shell runs in

	// Usage tells apart what Response.Usage sums up; what was used last comes last.
	// Only upstreams that the configuration names are told.
	Usage []UpstreamUsage `json:"usage,omitempty"`
}

// Cost returns what the turns of the response have cost so far, and false if none
// of them has a price. Turns without a price cost nothing.
func (r *Response) Cost() (sum Cost, known bool) {
	if r.Berth == nil {
		return Cost{}, false
	}
	for _, u := range r.Berth.Usage {
		if u.Cost != nil {
			sum.Currency, known = u.Cost.Currency, true
			sum.Value += u.Cost.Value
		}
	}
	return sum, known
}

// AddTurn counts a turn that an upstream answered. It returns a new value and
// leaves b, which may be nil, as it is.
func (b *ResponseBerth) AddTurn(turn UpstreamUsage) *ResponseBerth {
	var sum ResponseBerth
	if b != nil {
		sum = *b
	}
	var others []UpstreamUsage
	for _, u := range sum.Usage {
		if u.Upstream != turn.Upstream || u.Model != turn.Model {
			others = append(others, u)
			continue
		}
		turn.Turns += u.Turns
		turn.Usage.Add(u.Usage)
		if u.Cost != nil {
			cost := *u.Cost
			if turn.Cost != nil {
				cost = Cost{Value: cost.Value + turn.Cost.Value, Currency: turn.Cost.Currency}
			}
			turn.Cost = &cost
		}
	}
	sum.Usage = append(others, turn)
	return &sum
}
