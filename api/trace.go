package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// ingestTraces serves POST /v1/traces/ingest, where OpenAI's Agents SDK sends what
// its agents did. Berth stores none of it: what happened here is in the responses.
func ingestTraces(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
	if err := x.DiscardBody(r); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}
