package api

import (
	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/e2b"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/librechat"
	"github.com/berth-run/berth/api/messages"
	"github.com/berth-run/berth/api/openterminal"
	"github.com/berth-run/berth/api/scim"
	"github.com/berth-run/berth/api/swerex"
)

// Routes returns the patterns of the table of contents.
func Routes() []string {
	var all []string
	for _, rt := range new(handlers).routes() {
		all = append(all, rt.Pattern())
	}
	return all
}

// Table returns all entries of the table, except the console.
func Table() []exchange.Route {
	h := &handlers{messages: new(messages.Door), terminals: new(openterminal.Door),
		swerex: new(swerex.Door), librechat: new(librechat.Door)}
	return h.table(Options{Sandboxes: new(e2b.Door), SCIM: new(scim.Door)}, nil, nil)
}

// MessageRoutes returns the patterns of the routes of Anthropic's Messages API, without those of paths that it shares.
func MessageRoutes() []string {
	var all []string
	for _, rt := range new(messages.Door).Routes() {
		if rt.Select == nil {
			all = append(all, rt.Pattern())
		}
	}
	return all
}

// ForAdmin reports whether a route is for admin keys only.
func ForAdmin(pattern string) bool {
	for _, rt := range new(handlers).routes() {
		if rt.Pattern() == pattern {
			return permissions[pattern]&^(toReadAll|toManageAll|toProvision) == 0
		}
	}
	return false
}

// Document is the served OpenAPI document.
var Document = document

// Permissions returns the permission of each route.
func Permissions() map[string]berth.Permission { return permissions }
