// Package reference describes the routes of the API, in tests: as an OpenAPI document and as
// a page of the documentation. Routes that OpenAI's document has, take their parameters and
// schemas from there; those of Berth's own from the Go types of their requests and answers.
package reference

import (
	"net/http"
	"strings"

	"github.com/berth-run/berth/internal/rule"
)

// A Section is a group of routes.
type Section struct {
	Name   string
	Routes []*Route
}

// A Route describes a route. Summary and Page are for all routes, the rest for those that
// OpenAI's document lacks.
type Route struct {
	Pattern string // as registered in http.ServeMux
	Summary string // such as "Create a volume"; an operation's id is made of it
	Page    string // of the documentation, with or without an anchor; "" for none

	methods  []string
	query    []Parameter
	body     *body
	answers  map[string]any // by media type: a value of the Go type, or nil for bytes
	status   int
	keyless  bool
	upgrades bool
}

// A body is the JSON of a request, or bytes.
type body struct {
	value     any       // of the Go type; nil means bytes
	rule      rule.Rule // refuses other fields
	required  bool
	mediaType string
}

// A Parameter is a parameter of the query.
type Parameter struct {
	Name        string
	Type        string   // in JSON Schema
	Enum        []string // if not nil, the possible values
	Required    bool
	Description string
}

// Paging are the parameters of lists.
var Paging = []Parameter{
	{Name: "limit", Type: "integer", Description: "The number of objects on the page, 1 to 100. Default: 20."},
	{Name: "order", Type: "string", Enum: []string{"asc", "desc"},
		Description: "By creation. Default: desc, the newest first."},
	{Name: "after", Type: "string", Description: "The id of the last object of the page before."},
}

// On describes a route.
func On(pattern, summary, page string) *Route {
	r := &Route{Pattern: pattern, Summary: summary, Page: page, answers: map[string]any{}, status: http.StatusOK}
	if method, _, ok := strings.Cut(pattern, " "); ok {
		r.methods = []string{method}
	}
	return r
}

// Methods states the methods of a route that is registered for all.
func (r *Route) Methods(methods ...string) *Route {
	r.methods = methods
	return r
}

// Query adds parameters.
func (r *Route) Query(p ...Parameter) *Route {
	r.query = append(r.query, p...)
	return r
}

// Takes sets the body: JSON of the type of value, which the rule checks.
func (r *Route) Takes(check rule.Rule, value any) *Route {
	r.body = &body{value, check, true, "application/json"}
	return r
}

// MayTake is Takes for a body that may be absent.
func (r *Route) MayTake(check rule.Rule, value any) *Route {
	r.body = &body{value, check, false, "application/json"}
	return r
}

// TakesBytes sets the body: bytes of a media type.
func (r *Route) TakesBytes(mediaType string) *Route {
	r.body = &body{nil, nil, true, mediaType}
	return r
}

// Gives adds an answer: JSON of the type of value.
func (r *Route) Gives(value any) *Route {
	r.answers["application/json"] = value
	return r
}

// Streams adds an answer: server-sent events, whose data is JSON of the type of one of the values.
func (r *Route) Streams(values ...any) *Route {
	r.answers["text/event-stream"] = alternatives(values)
	return r
}

// alternatives are values of several types. An answer has one of them.
type alternatives []any

// GivesBytes adds answers of bytes.
func (r *Route) GivesBytes(mediaTypes ...string) *Route {
	for _, kind := range mediaTypes {
		r.answers[kind] = nil
	}
	return r
}

// Status sets the status of success. The default is 200.
func (r *Route) Status(status int) *Route {
	r.status = status
	return r
}

// Keyless states that requests need no key.
func (r *Route) Keyless() *Route {
	r.keyless = true
	return r
}

// Upgrades states that requests become a WebSocket or another connection.
func (r *Route) Upgrades() *Route {
	r.upgrades, r.status = true, http.StatusSwitchingProtocols
	return r
}

// path returns the route's path.
func (r *Route) path() string { return r.Pattern[strings.Index(r.Pattern, "/"):] }

// own reports whether the route is described by its Go types.
func (r *Route) own() bool {
	return len(r.answers) > 0 || r.body != nil || r.upgrades || r.status != http.StatusOK
}
