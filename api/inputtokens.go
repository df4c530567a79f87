package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// The fields of POST /v1/responses/input_tokens, as in TokenCountsBody of OpenAI's
// OpenAPI document: those of a request that make its context. None is required.
var inputTokensRequest = object(some(responseFields, fields{"personality": unsupported},
	"conversation", "input", "instructions", "model", "parallel_tool_calls", "previous_response_id",
	"reasoning", "text", "tool_choice", "tools", "truncation"))

// some returns the rules of these names among all, and more.
func some(all, more fields, names ...string) fields {
	for _, name := range names {
		more[name] = all[name]
	}
	return more
}

// countInputTokens serves POST /v1/responses/input_tokens.
func (s *server) countInputTokens(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req berth.ResponseRequest
	if err := x.Decode(r, inputTokensRequest, &req); err != nil {
		return err
	}
	if err := fill(&req); err != nil {
		return err
	}
	n, err := s.Engine.CountTokens(r.Context(), c, &req)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, struct {
		Object      string `json:"object"`
		InputTokens int    `json:"input_tokens"`
	}{"response.input_tokens", n})
}
