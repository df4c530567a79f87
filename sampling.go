package berth

// Sampling holds the sampling parameters that only Chat Completions has. It is part
// of a ResponseRequest, but clients of the Responses API cannot set it.
type Sampling struct {
	Stop             []string       `json:"stop,omitempty"` // up to 4 texts before which an answer ends
	FrequencyPenalty *float64       `json:"frequency_penalty,omitempty"`
	PresencePenalty  *float64       `json:"presence_penalty,omitempty"`
	Seed             *int64         `json:"seed,omitempty"`
	LogitBias        map[string]int `json:"logit_bias,omitempty"` // by the upstream's token id
}
