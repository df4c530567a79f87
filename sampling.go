package berth

// Sampling is what only Chat Completions can ask about the choice of tokens. It
// is part of a ResponseRequest, and no client of Responses can set it.
type Sampling struct {
	Stop             []string       `json:"stop,omitempty"` // up to 4 texts before which an answer ends
	FrequencyPenalty *float64       `json:"frequency_penalty,omitempty"`
	PresencePenalty  *float64       `json:"presence_penalty,omitempty"`
	Seed             *int64         `json:"seed,omitempty"`
	LogitBias        map[string]int `json:"logit_bias,omitempty"` // by the upstream's token id
}
