package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/bundle"
	"github.com/berth-run/berth/internal/rule"
)

// exportBundle serves GET /v1/responses/{response}/bundle: the chain that ends with
// the response and, unless container=false, its container, as one file.
func (s *server) exportBundle(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	withContainer := q.Boolean("container", true)
	if err := q.End(); err != nil {
		return err
	}
	id := berth.ResponseID(r.PathValue("response"))
	exported, err := s.Bundles.Export(r.Context(), c.Project, id, withContainer)
	if err != nil {
		return err
	}
	defer exported.Close()
	h := x.Header()
	h.Set("Content-Type", bundle.ContentType)
	h.Set("Content-Disposition", exchange.Attachment(string(id)+".tar"))
	to := x.Patient()
	defer to.Renew() // the last bytes leave after the handler
	if _, err := exported.WriteTo(to); err != nil {
		x.Abort(err)
	}
	return nil
}

// importBundle serves POST /v1/bundles, whose body is a bundle.
func (s *server) importBundle(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	if err := exchange.NewQuery(r).End(); err != nil {
		return err
	}
	done, err := s.Bundles.Import(r.Context(), c, x.Body(r, 0))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, done)
}

var replayBody = rule.Object(rule.Fields{"model": rule.Text(1, 256)})

// replayResponse serves POST /v1/responses/{response}/replay.
func (s *server) replayResponse(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req struct{ Model string }
	if err := x.Decode(r, replayBody, &req); err != nil {
		return err
	}
	done, err := s.Bundles.Replay(r.Context(), c, berth.ResponseID(r.PathValue("response")), req.Model)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, done)
}
