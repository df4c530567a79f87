package api

import (
	"fmt"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// The fields of POST /v1/responses/compact, as in CompactResponseMethodPublicBody
// of OpenAI's OpenAPI document.
var compactRequest = object(some(responseFields, fields{"prompt_cache_key": text(0, 64)},
	"input", "instructions", "model", "previous_response_id", "prompt_cache_options",
	"prompt_cache_retention", "service_tier"), "model")

// compactResponse serves POST /v1/responses/compact.
func (s *server) compactResponse(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req berth.ResponseRequest
	if err := x.Decode(r, compactRequest, &req); err != nil {
		return err
	}
	if err := complete(&req); err != nil {
		return err
	}
	compacted, err := s.Engine.Compact(r.Context(), c, &req)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, compacted)
}

// checkTrigger refuses a compaction_trigger that something follows.
func checkTrigger(input []berth.Item) error {
	for i, it := range input[:max(0, len(input)-1)] {
		if it.Type() == berth.ItemCompactionTrigger {
			return berth.Invalid(fmt.Sprintf("input[%d]", i), "Invalid 'input[%d]': a compaction_trigger must be the last input item.", i)
		}
	}
	return nil
}
