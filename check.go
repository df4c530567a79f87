package berth

// Checks are commands that must succeed in the container before an answer counts.
// The model is shown what failed and answers again.
type Checks struct {
	Commands  []string `json:"commands"`
	TimeoutMS *int     `json:"timeout_ms,omitempty"` // of each; default the server's
	MaxRounds int      `json:"max_rounds,omitempty"` // answers that are checked before the response ends as incomplete; default 3
}

// DefaultCheckRounds is the max_rounds of Checks that have none.
const DefaultCheckRounds = 3
