package berth

// An Upstream is a server that models are asked on, and how it does. Its counts
// begin with Berth's process.
type Upstream struct {
	Object       string        `json:"object"`    // "upstream"
	Name         string        `json:"name"`      // in the configuration, or the pattern of the entry that describes it
	Circuit      string        `json:"circuit"`   // closed, half-open or open, in which case it is left alone
	InFlight     int           `json:"in_flight"` // turns
	Waiting      int           `json:"waiting"`   // turns, for its limits
	Keys         []UpstreamKey `json:"keys"`
	Turns        int64         `json:"turns"`     // that it was asked, also those that went elsewhere then
	Completed    int64         `json:"completed"` // of these
	Failed       int64         `json:"failed"`    // of these, as the circuit counts it
	InputTokens  int64         `json:"input_tokens"`
	OutputTokens int64         `json:"output_tokens"`
}

// An UpstreamKey is a key of an upstream, by the name of its variable.
type UpstreamKey struct {
	Name        string `json:"name"`
	InFlight    int    `json:"in_flight"`
	RestSeconds int    `json:"rest_seconds"` // in which other keys are used; 0 is none
}
