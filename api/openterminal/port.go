package openterminal

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/preview"
	"github.com/berth-run/berth/internal/conns"
)

// ports serves GET /ports: the ports on which programs in the container listen.
func (v *visit) ports() error { return v.do(task{"do": "ports"}) }

// proxyPort serves /proxy/{port}/…: the HTTP server on a port of the container.
func (v *visit) proxyPort() error {
	text := v.r.PathValue("port")
	port, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return faults{{"int_parsing", []any{"path", "port"},
			"Input should be a valid integer, unable to parse string as an integer", text}}
	case port < 1 || port > 65535:
		return refused(http.StatusUnprocessableEntity, "Port must be between 1 and 65535")
	}
	conns.Known(v.r.Context())
	dial, release, err := v.door.Containers.Access().Port(v.r.Context(), v.caller, v.owner.Container, port)
	if err != nil {
		return err
	}
	defer release()
	r, done, err := v.x.Duplex(v.r)
	if err != nil {
		return err
	}
	defer done()
	prefix := Path + "/proxy/" + text
	rest := "/" + strings.TrimPrefix(strings.TrimPrefix(r.URL.EscapedPath(), prefix), "/")
	out := v.x.Patient()
	defer out.Renew() // the server sends the last bytes after the handler returns
	err = v.door.proxy.Serve(out, r, preview.Target{Container: v.owner.Container, Port: port, Dial: dial,
		Prefix: prefix, Path: rest, Keyed: true})
	if e, ok := berthError(err); ok && e.Wire == "port_not_open" {
		return refused(http.StatusNotFound, "Port not found")
	}
	if berth.ErrorCode(err) == berth.CodeUpstream { // a fault of the program in the container
		return v.x.FailQuietly(err)
	}
	return err
}
