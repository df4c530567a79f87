package model_test

import (
	"errors"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

func TestRefuseSampling(t *testing.T) {
	half, seed := 0.5, int64(7)
	all := berth.Sampling{Stop: []string{"x"}, FrequencyPenalty: &half, PresencePenalty: &half, Seed: &seed,
		LogitBias: map[string]int{"1": 2}}
	known := []string{}
	for _, name := range []string{"stop", "frequency_penalty", "presence_penalty", "seed", "logit_bias"} {
		err := model.RefuseSampling(all, known...)
		if e, ok := errors.AsType[*berth.Error](err); !ok || e.Param != name || e.Wire != "unsupported_parameter" {
			t.Errorf("supported %v: got %v, want %s refused", known, err, name)
		}
		known = append(known, name)
	}
	if err := model.RefuseSampling(all, known...); err != nil {
		t.Errorf("all supported: got %v", err)
	}
	if err := model.RefuseSampling(berth.Sampling{}); err != nil {
		t.Errorf("no fields: got %v", err)
	}
}
