package model

import (
	"slices"

	"github.com/berth-run/berth"
)

// RefuseSampling returns the error for a request that asks for what a provider
// cannot do. known are the wire's names of what it can.
func RefuseSampling(s berth.Sampling, known ...string) error {
	for _, asked := range []struct {
		name string
		is   bool
	}{
		{"stop", len(s.Stop) > 0},
		{"frequency_penalty", s.FrequencyPenalty != nil},
		{"presence_penalty", s.PresencePenalty != nil},
		{"seed", s.Seed != nil},
		{"logit_bias", len(s.LogitBias) > 0},
	} {
		if asked.is && !slices.Contains(known, asked.name) {
			return &berth.Error{Code: berth.CodeInvalid, Wire: "unsupported_parameter", Param: asked.name,
				Message: "Unsupported parameter: '" + asked.name + "' is not supported with this model."}
		}
	}
	return nil
}
