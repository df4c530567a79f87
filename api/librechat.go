package api

import (
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/librechat"
)

// newLibreChat returns the door of LibreChat's code API, or nil if it is not served.
func newLibreChat(o Options) *librechat.Door {
	if o.MCP.Sessions == nil {
		return nil
	}
	return librechat.New(librechat.Options{Containers: o.Containers, Sessions: o.MCP.Sessions, Log: o.Exchange.Log,
		Remove: func(r *http.Request, p berth.ProjectID, id berth.ContainerID) error {
			return o.Containers.Delete(r.Context(), p, id)
		}})
}
