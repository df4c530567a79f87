package request

import (
	"math"

	"github.com/berth-run/berth/internal/rule"
)

// requestBerth checks "berth" of POST /v1/responses. See berth.RequestBerth.
var requestBerth = rule.Object(rule.Fields{
	"checks": rule.Object(rule.Fields{
		"commands":   rule.AtLeastOne(rule.List(rule.Text(1, 64<<10), 16)),
		"timeout_ms": rule.Integer(1, math.MaxInt32),
		"max_rounds": rule.Integer(1, 20),
	}, "commands"),
	"budget": rule.Object(rule.Fields{
		"max_turns":             rule.Integer(1, math.MaxInt32),
		"max_total_tokens":      rule.Integer(1, math.MaxInt32),
		"max_seconds":           rule.Integer(1, math.MaxInt32),
		"max_cost":              rule.Decimal(0.000000001, 1e9),
		"max_repeated_failures": rule.Integer(-1, math.MaxInt32),
		"max_repeated_calls":    rule.Integer(-1, math.MaxInt32),
	}),
	"require_approval": approvalPolicy,
	"inherit":          rule.Boolean,
})

var commandPatterns = rule.Object(rule.Fields{"commands": rule.AtLeastOne(rule.List(rule.Text(1, 1024), 256))},
	"commands")

var approvalFilters = rule.Object(rule.Fields{"always": commandPatterns, "never": commandPatterns})

// approvalPolicy checks "require_approval": a mode or an object, as for an MCP tool.
func approvalPolicy(at string, v any) error {
	if _, ok := v.(string); ok {
		return rule.OneOf("always", "never")(at, v)
	}
	return approvalFilters(at, v)
}
