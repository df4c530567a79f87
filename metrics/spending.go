package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

// maxSpending is the maximum number of projects and keys whose spending is emitted.
const maxSpending = 500

var (
	descSpent = describe("spent_this_month",
		"Cost of models in the present month (UTC) of projects and keys with a limit, in the currency of the prices. Key is empty for a project.",
		"project", "key")
	descSpendLimit = describe("cost_per_month_limit", "The limit of that cost.", "project", "key")
)

// emitSpending emits the spending of projects and keys that have a limit. It emits nothing if
// that cannot be read.
func emitSpending(ctx context.Context, s Sources, emit emitFunc) {
	all, err := s.Spending(ctx)
	if err != nil {
		return
	}
	left := maxSpending
	for _, of := range all {
		if of.Limit == nil {
			continue
		}
		if left--; left < 0 {
			return
		}
		emit(descSpent, prometheus.GaugeValue, of.Used.Units(), string(of.Project), string(of.Key))
		emit(descSpendLimit, prometheus.GaugeValue, of.Limit.Units(), string(of.Project), string(of.Key))
	}
}
