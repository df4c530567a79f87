package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/envd"
	"github.com/berth-run/berth/api/exchange"
)

// guest forwards a request to the guest of a container. The container does not expire before
// the answer is complete. The commands berth exec, attach and cp use it.
func (h *containers) guest(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	path := r.PathValue("path")
	if !envd.Serves(path) {
		return berth.Errorf(berth.CodeNotFound, "This server does not serve %s %s.", r.Method, r.URL.Path)
	}
	door, release, err := h.service.Access().Door(r.Context(), c, containerID(r))
	if err != nil {
		return err
	}
	defer release()
	return envd.Pass(x, r, path, door, h.log)
}

// guestRoute returns the route of the guests' services.
func guestRoute(h exchange.Handler) exchange.Route {
	rt := exchange.On("/v1/containers/{container}/guest/{path...}", h, exchange.ReadsQuery, exchange.NoCORS)
	rt.Limits = func(r *http.Request) exchange.Traits { return envd.Limits(r.Method, r.PathValue("path")) }
	return rt
}
