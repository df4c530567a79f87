package berth

// An Upstream is the state of a model server. Its counters start at zero with each
// Berth process.
type Upstream struct {
	Object    string        `json:"object"`    // "upstream"
	Name      string        `json:"name"`      // in the configuration, or the pattern of its entry
	Circuit   string        `json:"circuit"`   // closed, half-open, or open (no turns are sent)
	InFlight  int           `json:"in_flight"` // turns in progress
	Waiting   int           `json:"waiting"`   // turns that wait for its rate limits
	Keys      []UpstreamKey `json:"keys"`
	Turns     int64         `json:"turns"`     // turns sent to it, including those retried elsewhere
	Completed int64         `json:"completed"` // completed turns
	Failed    int64         `json:"failed"`    // failed turns, as the circuit counts them
	// time to the first output, averaged over the latest turns; 0 before the first
	FirstTokenMS int64 `json:"first_token_ms"`
	TurnMS       int64 `json:"turn_ms"` // time of a completed turn, averaged in the same way
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
}

// An UpstreamKey is an API key of an upstream, identified by its environment variable.
type UpstreamKey struct {
	Name        string `json:"name"`
	InFlight    int    `json:"in_flight"`
	RestSeconds int    `json:"rest_seconds"` // remaining seconds in which the key is not used
}
