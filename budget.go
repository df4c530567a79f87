package berth

// A Budget limits a response. A response that reaches a limit ends as incomplete.
// Zero means the server's limit, which no request can raise.
type Budget struct {
	Turns   int    `json:"max_turns,omitempty"`        // answers of the model
	Tokens  int    `json:"max_total_tokens,omitempty"` // of all turns, in and out
	Seconds int    `json:"max_seconds,omitempty"`      // since it was created
	Cost    Amount `json:"max_cost,omitempty"`         // in the currency of the prices

	// Negative numbers of these mean no limit.
	Failures int `json:"max_repeated_failures,omitempty"` // consecutive failures of the same call
	Repeats  int `json:"max_repeated_calls,omitempty"`    // consecutive calls whose results the model has seen before
}

// Within returns the budget with unset limits taken from the server's. Turns, tokens,
// seconds and cost are capped at the server's limits.
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

// Reasons of Berth's own for which a response ends as incomplete.
const (
	ReasonTurns        = "max_turns"
	ReasonTokens       = "max_total_tokens"
	ReasonSeconds      = "max_seconds"
	ReasonCost         = "max_cost"
	ReasonFailures     = "max_repeated_failures"
	ReasonRepeats      = "max_repeated_calls"
	ReasonChecksFailed = "checks_failed"
	ReasonCompaction   = "compaction" // see CompactionEdit
)
