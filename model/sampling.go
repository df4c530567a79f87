package model

import (
	"slices"

	"github.com/berth-run/berth"
)

// RefuseSampling returns an error for the first sampling field that is set but not
// supported. supported holds the wire's names of the fields that the provider can
// send.
func RefuseSampling(s berth.Sampling, supported ...string) error {
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"stop", len(s.Stop) > 0},
		{"frequency_penalty", s.FrequencyPenalty != nil},
		{"presence_penalty", s.PresencePenalty != nil},
		{"seed", s.Seed != nil},
		{"logit_bias", len(s.LogitBias) > 0},
	} {
		if field.set && !slices.Contains(supported, field.name) {
			return &berth.Error{Code: berth.CodeInvalid, Wire: "unsupported_parameter", Param: field.name,
				Message: "Unsupported parameter: '" + field.name + "' is not supported with this model."}
		}
	}
	return nil
}
