package berth

// A Budget bounds what a response may take before it ends as incomplete. Zero is the
// server's bound, which no request can raise.
type Budget struct {
	Turns   int    `json:"max_turns,omitempty"`
	Tokens  int    `json:"max_total_tokens,omitempty"` // of all turns, in and out
	Seconds int    `json:"max_seconds,omitempty"`      // since it was created
	Cost    Amount `json:"max_cost,omitempty"`         // in the currency of the prices

	// Failures is how often in a row the same call may fail, Repeats how many calls in
	// a row may bring nothing that was not seen before. Negative is no bound.
	Failures int `json:"max_repeated_failures,omitempty"`
	Repeats  int `json:"max_repeated_calls,omitempty"`
}

// Within returns the budget with what it leaves open taken from the server's, and no
// more than that where the server has a bound.
func (b Budget) Within(server Budget) Budget {
	b.Turns = tighter(b.Turns, server.Turns)
	b.Tokens = tighter(b.Tokens, server.Tokens)
	b.Seconds = tighter(b.Seconds, server.Seconds)
	b.Cost = tighter(b.Cost, server.Cost)
	if b.Failures == 0 {
		b.Failures = server.Failures
	}
	if b.Repeats == 0 {
		b.Repeats = server.Repeats
	}
	return b
}

func tighter[N int | Amount](own, server N) N {
	if own <= 0 || server > 0 && server < own {
		return server
	}
	return own
}

// Why a response of Berth's ended as incomplete, beyond the reasons that OpenAI has.
const (
	ReasonTurns        = "max_turns"
	ReasonTokens       = "max_total_tokens"
	ReasonSeconds      = "max_seconds"
	ReasonCost         = "max_cost"
	ReasonFailures     = "max_repeated_failures"
	ReasonRepeats      = "max_repeated_calls"
	ReasonChecksFailed = "checks_failed"
)
