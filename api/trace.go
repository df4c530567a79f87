package api

import (
	"io"
	"net/http"

	"github.com/berth-run/berth"
)

// ingestTraces serves POST /v1/traces/ingest, where OpenAI's Agents SDK tells what
// its agents did. Berth keeps none of it: what happened here is in the responses.
func (s *server) ingestTraces(w http.ResponseWriter, r *http.Request, _ berth.Caller) error {
	if _, err := io.Copy(io.Discard, s.body(w, r, s.MaxBody)); err != nil {
		return bodyError(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
