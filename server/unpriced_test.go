package server

import (
	"net/http"
	"strings"
	"testing"
)

// A budget without prices has no effect, which the API says where it shows the budget.
func TestUnpricedBudget(t *testing.T) {
	const config = "driver: unsafe-local\ncontainers: {pool: 0}\nlimits: {default: {cost_per_month: 5}}\n"
	for prices, warns := range map[string]bool{"": true,
		"upstreams: {a: {provider: openai, api_key: none, prices: {m: {input: 1, output: 2}}}}\n": false} {
		_, web := testServer(t, t.TempDir(), config+prices)
		status, text := get(t, web.URL+"/v1/organization/spend")
		if status != http.StatusOK || !strings.Contains(text, `"limit":{"value":5,`) || strings.Contains(text,
			"No model of this server has a price") != warns {
			t.Errorf("prices %q: got %d %s", prices, status, text)
		}
	}
}
