package berth

// Checks are commands that must succeed in the container before an answer is
// accepted. If one fails, the model gets its output and answers again.
type Checks struct {
	Commands  []string `json:"commands"`             // run in order; each must exit with 0
	TimeoutMS *int     `json:"timeout_ms,omitempty"` // per command; nil means the server's default

	// MaxRounds is the number of answers to check before the response ends as
	// incomplete. Zero means DefaultCheckRounds.
	MaxRounds int `json:"max_rounds,omitempty"`
}

// DefaultCheckRounds is the default of Checks.MaxRounds.
const DefaultCheckRounds = 3
