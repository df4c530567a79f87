package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// ingestTraces serves POST /v1/traces/ingest, to which OpenAI's Agents SDK sends the traces
// of its agents. Berth discards them, because its responses already record the work.
func ingestTraces(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	if err := x.DiscardBody(r); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}
