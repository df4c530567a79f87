package api

import (
	"github.com/berth-run/berth/api/e2b"
	"github.com/berth-run/berth/api/exchange"
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
	return new(handlers).table(Options{Sandboxes: new(e2b.Door)}, nil)
}

// ForAdmin reports whether a route is for admin keys only.
func ForAdmin(pattern string) bool {
	for _, rt := range new(handlers).routes() {
		if rt.Pattern() == pattern {
			return rt.Is(exchange.ForAdmin)
		}
	}
	return false
}

// Document is the served OpenAPI document.
var Document = document
