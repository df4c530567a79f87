package request

import "math"

// requestBerth is the field "berth" of POST /v1/responses: what Berth offers beyond
// OpenAI's contract. See berth.RequestBerth.
var requestBerth = object(fields{
	"checks": object(fields{
		"commands":   atLeastOne(list(text(1, 64<<10), 16)),
		"timeout_ms": integer(1, math.MaxInt32),
		"max_rounds": integer(1, 20),
	}, "commands"),
	"budget": object(fields{
		"max_turns":             integer(1, math.MaxInt32),
		"max_total_tokens":      integer(1, math.MaxInt32),
		"max_seconds":           integer(1, math.MaxInt32),
		"max_cost":              decimal(0.000000001, 1e9),
		"max_repeated_failures": integer(-1, math.MaxInt32),
		"max_repeated_calls":    integer(-1, math.MaxInt32),
	}),
	"require_approval": approvalPolicy,
})

var commandPatterns = object(fields{"commands": atLeastOne(list(text(1, 1024), 256))}, "commands")

var approvalFilters = object(fields{"always": commandPatterns, "never": commandPatterns})

// approvalPolicy is a mode or an object, as require_approval of an MCP tool.
func approvalPolicy(at string, v any) error {
	if _, ok := v.(string); ok {
		return oneOf("always", "never")(at, v)
	}
	return approvalFilters(at, v)
}
