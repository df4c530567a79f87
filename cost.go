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

// unit is the Amount of one unit of a currency.
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

// Units returns the amount in units of its currency, as nearly as a float64 can.
func (a Amount) Units() float64 { return float64(a) / unit }

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

// A Cost is an amount with its currency.
type Cost struct {
	Value    Amount `json:"value"`
	Currency string `json:"currency"` // its ISO 4217 code in lower case
}

// UpstreamUsage is the usage of one model of one upstream by the turns of a response.
type UpstreamUsage struct {
	Upstream string `json:"upstream"` // its name in the server's configuration
	Model    string `json:"model"`    // the upstream's name of the model
	Turns    int    `json:"turns"`
	Usage
	Cost *Cost `json:"cost,omitempty"` // nil if the model has no price
}

// ResponseBerth extends OpenAI's response object.
type ResponseBerth struct {
	Template string `json:"template,omitempty"` // digest of the template of the shell's container

	// Usage splits Response.Usage by upstream and model, the last used at the end.
	// It lists only upstreams that the configuration names.
	Usage []UpstreamUsage `json:"usage,omitempty"`

	// TraceID is the id of the trace of the request that created the response, if the server
	// exports it.
	TraceID string `json:"trace_id,omitempty"`

	// Timings tell where the time went, at most MaxTimings of them. While the response runs,
	// the latest may be missing.
	Timings []Timing `json:"timings,omitempty"`

	// Approvals are the approval requests that the input answers, and by whom.
	Approvals []ApprovalAnswer `json:"approvals,omitempty"`

	// EndUser is the end user for whom the response was created.
	EndUser EndUserID `json:"end_user,omitempty"`

	// StopSequence is the stop sequence that ended the answer, if the request has any and the upstream reports it.
	StopSequence string `json:"stop_sequence,omitempty"`
}

// Cost returns the cost of the response's turns so far. It returns false if no turn
// has a price. Turns without a price cost nothing.
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

// AddTurn returns a copy of b that counts one more turn. b may be nil and does not
// change.
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
