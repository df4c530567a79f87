package berth

// A Timing is a span of time in which a response waited for one thing: a call of a model, a summary of
// its context, or a hosted call of a tool. The timings of a response are in the order of their ends, and may
// overlap. Times are those of the server's clock.
type Timing struct {
	Type        TimingType `json:"type"`
	StartedAtMS int64      `json:"started_at_ms"` // Unix milliseconds
	DurationMS  int64      `json:"duration_ms"`
	ItemID      string     `json:"item_id,omitempty"`   // of the tool's call
	ItemType    ItemType   `json:"item_type,omitempty"` // of the tool's call
	// the code of a failed call of a model, or a tool's outcome other than ok
	Error string `json:"error,omitempty"`

	// Those of a call of a model, and of a summary, whose usage and cost are for all attempts.
	Upstream     string `json:"upstream,omitempty"` // absent if the configuration does not name it
	Model        string `json:"model,omitempty"`
	FirstTokenMS *int64 `json:"first_token_ms,omitempty"` // from the start to the first delta
	Usage        *Usage `json:"usage,omitempty"`          // nil if it failed
	Cost         *Cost  `json:"cost,omitempty"`           // nil without a price
}

// A TimingType is the kind of a Timing.
type TimingType string

const (
	TimingModel      TimingType = "model"
	TimingTool       TimingType = "tool"
	TimingCompaction TimingType = "compaction" // the calls of a model for one summary of the context
)

// MaxTimings is the number of timings of a response. Later ones are left out.
const MaxTimings = 1000

// AddTiming returns a copy of b with one more timing. b may be nil and does not change.
func (b *ResponseBerth) AddTiming(t Timing) *ResponseBerth {
	var with ResponseBerth
	if b != nil {
		with = *b
	}
	if len(with.Timings) < MaxTimings {
		with.Timings = append(with.Timings[:len(with.Timings):len(with.Timings)], t)
	}
	return &with
}
