package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/bundle"
	"github.com/berth-run/berth/internal/rule"
)

// bundles serves bundles of responses.
type bundles struct{ service *bundle.Service }

// export serves GET /v1/responses/{response}/bundle. The bundle is one file with the chain
// that ends with the response and, unless container=false, its container.
func (h *bundles) export(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	withContainer := q.Boolean("container", true)
	if err := q.End(); err != nil {
		return err
	}
	id := berth.ResponseID(r.PathValue("response"))
	exported, err := h.service.Export(r.Context(), c.Project, id, withContainer)
	if err != nil {
		return err
	}
	defer exported.Close()
	header := x.Header()
	header.Set("Content-Type", bundle.ContentType)
	header.Set("Content-Disposition", exchange.Attachment(string(id)+".tar"))
	to := x.Patient()
	defer to.Renew() // the server sends the last bytes after the handler returns
	if _, err := exported.WriteTo(to); err != nil {
		x.Abort(err)
	}
	return nil
}

// load serves POST /v1/bundles, whose body is a bundle.
func (h *bundles) load(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	done, err := h.service.Import(r.Context(), c, x.Body(r, 0))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, done)
}

type replayRequest struct {
	Model string `json:"model"` // the model to call; absent replays the recorded turns
}

var replayBody = rule.Object(rule.Fields{"model": rule.Text(1, 256)})

// replay serves POST /v1/responses/{response}/replay.
func (h *bundles) replay(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req replayRequest
	if err := x.Decode(r, replayBody, &req); err != nil {
		return err
	}
	done, err := h.service.Replay(r.Context(), c, berth.ResponseID(r.PathValue("response")), req.Model)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, done)
}
