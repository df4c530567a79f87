package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/bundle"
)

// exportBundle serves GET /v1/responses/{response}/bundle: the chain that ends with
// the response and, unless container=false, its container, as one file.
func (s *server) exportBundle(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	q := newQuery(r)
	withContainer := q.boolean("container", true)
	if err := q.end(); err != nil {
		return err
	}
	id := berth.ResponseID(r.PathValue("response"))
	x, err := s.Bundles.Export(r.Context(), c.Project, id, withContainer)
	if err != nil {
		return err
	}
	defer x.Close()
	h := w.Header()
	h.Set("Content-Type", bundle.ContentType)
	h.Set("Content-Disposition", attachment(string(id)+".tar"))
	out := s.patiently(w)
	defer out.renew() // the last bytes leave after the handler
	if _, err := x.WriteTo(out); err != nil {
		s.Log.Warn("a bundle broke off", "request_id", h.Get("x-request-id"), "err", err)
		panic(http.ErrAbortHandler) // half a bundle must not look like a whole one
	}
	return nil
}

// importBundle serves POST /v1/bundles, whose body is a bundle.
func (s *server) importBundle(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	if err := newQuery(r).end(); err != nil {
		return err
	}
	done, err := s.Bundles.Import(r.Context(), c, s.body(w, r, 0))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, done)
}

var replayBody = object(fields{"model": text(1, 256)})

// replayResponse serves POST /v1/responses/{response}/replay.
func (s *server) replayResponse(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	var req struct{ Model string }
	if err := s.decodeBody(w, r, replayBody, &req); err != nil {
		return err
	}
	done, err := s.Bundles.Replay(r.Context(), c, berth.ResponseID(r.PathValue("response")), req.Model)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, done)
}
