// Package librechat serves LibreChat's code API: code that runs in a container, with files that later runs have.
//
// A session is a container of the project, whose name has the id of the session. There are no other records. Ids have
// the form of LibreChat's, which refuses others: 21 letters, digits, underscores and hyphens.
package librechat

import (
	"log/slog"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/session"
)

// Path is the start of the door's paths: LIBRECHAT_CODE_BASEURL ends with it.
const Path = "/librechat/v1"

// Options are what the door needs.
type Options struct {
	Containers *container.Service
	Sessions   *session.Service
	Remove     func(r *http.Request, p berth.ProjectID, id berth.ContainerID) error // deletes a container
	Log        *slog.Logger
	MaxBody    int64 // bytes of a request in JSON; default 4 MiB
	MaxOutput  int   // bytes of each output; default 256 KiB
}

// A Door serves the API. It is safe for concurrent use.
type Door struct{ Options }

// New returns a door.
func New(opts Options) *Door {
	if opts.MaxBody == 0 {
		opts.MaxBody = 4 << 20
	}
	if opts.MaxOutput == 0 {
		opts.MaxOutput = 256 << 10
	}
	return &Door{opts}
}

// Routes returns the routes of the door.
func (d *Door) Routes() []exchange.Route {
	// Files in a container count towards its disk, not towards the storage of the project.
	const reads = exchange.ReadsQuery | exchange.KeyInHeader
	const stores = reads | exchange.StoresNothing
	routes := []exchange.Route{
		exchange.On("POST "+Path+"/exec", d.execute, stores),
		exchange.On("POST "+Path+"/exec/programmatic", d.programmatic, stores|exchange.StoresLittle),
		exchange.On("POST "+Path+"/upload", d.upload, stores),
		exchange.On("GET "+Path+"/files/{session}", d.known((*visit).list), reads),
		exchange.On("GET "+Path+"/sessions/{session}/objects/{object}", d.known((*visit).describe), reads),
		exchange.On("GET "+Path+"/download/{session}/{object}", d.known((*visit).download), reads|exchange.NoCORS),
		exchange.On("DELETE "+Path+"/files/{session}/{object}", d.known((*visit).delete), reads),
	}
	for i := range routes {
		routes[i].WriteError = writeError
	}
	return routes
}

// writeError answers with an error in the form of the API.
func writeError(x *exchange.Exchange, status int, e exchange.Error) {
	_ = x.JSON(status, map[string]string{"error": e.Message})
}

// programmatic serves POST /exec/programmatic. A refusal that says so is better than a call that waits for ever.
func (d *Door) programmatic(*exchange.Exchange, *http.Request, berth.Caller) error {
	return berth.Invalid("", "Berth does not run LibreChat's programmatic tool calls. Turn the capability off in "+
		"librechat.yaml; /exec works.")
}
