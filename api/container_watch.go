package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// watch serves GET /v1/containers/{container}/watch: a stream of
// berth.ContainerFileEvents. It starts with the existing files. When the container ends,
// the stream ends with an error event.
func (h *containers) watch(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	// before the stream, so that an error sets the HTTP status
	_, release, err := h.service.Access().Guest(r.Context(), c, containerID(r))
	if err != nil {
		return err
	}
	release()
	out, ctx := x.Stream(r, false)
	defer out.Close()
	number := int64(0)
	for ev, err := range h.service.Files().Watch(ctx, c.Project, containerID(r)) {
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return out.Fail(number, err)
		}
		if out.JSON(string(ev.Type), ev) != nil {
			return nil
		}
		number++
	}
	return nil
}
