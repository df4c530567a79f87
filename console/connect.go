package console

import (
	"net/http"
	"strings"

	"github.com/berth-run/berth/internal/connect"
)

// A connectPage is the page with the lines that point clients to this server.
type connectPage struct {
	Clients []connect.Client
	Keys    bool // the server has keys, so the lines have a word in place of one
}

// show serves GET /console/connect.
func (p *connectPage) show(v *visit) error {
	if p.Keys = v.token != ""; p.Keys {
		p.Clients = clientsOf(v, connect.Key)
	} else {
		p.Clients = clientsOf(v, "")
	}
	return v.show(http.StatusOK, "connect", "Connect a client", p)
}

// clientsOf returns the lines of all clients, with a key. They name a model that the user may use.
func clientsOf(v *visit, key string) []connect.Client {
	s := connect.Server{URL: strings.TrimSuffix(baseURL(v), "/v1"), Key: key, Model: "MODEL"}
	if !v.admin() { // an admin key uses no model
		if names, err := modelsOf(v); err == nil && len(names) > 0 {
			s.Model = names[0]
		}
	}
	return s.Clients()
}
