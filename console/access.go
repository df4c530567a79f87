package console

import (
	"errors"
	"net/http"

	"github.com/berth-run/berth"
)

// An Access returns why the caller of a request to the API may not use a route, by its pattern: the error that the
// API would answer with. Nil: the caller may. Where permissions are given, the caller needs one of them, too.
type Access func(r *http.Request) func(route string, needed ...berth.Permission) error

// A formToken is the token of a visit's forms. It also tells a template which forms the visitor may send.
type formToken struct {
	token string
	visit *visit // nil in tests of templates: all forms
}

// String returns the token.
func (t formToken) String() string { return t.token }

// May reports whether the visitor may use a route of the API.
func (t formToken) May(route string) bool { return t.Why(route) == "" }

// Why returns why the visitor may not use a route of the API; "" if the visitor may.
func (t formToken) Why(route string) string { return t.why(route) }

// routeOfResponses is the route to run and to approve, each with a permission of its own.
const routeOfResponses = "POST /v1/responses"

// MayRun reports whether the visitor may create responses.
func (t formToken) MayRun() bool { return t.WhyRun() == "" }

// WhyRun returns why the visitor may not create responses; "" if the visitor may.
func (t formToken) WhyRun() string { return t.why(routeOfResponses, berth.MayRun) }

// MayApprove reports whether the visitor may answer calls that wait for approval.
func (t formToken) MayApprove() bool { return t.WhyApprove() == "" }

// WhyApprove returns why the visitor may not answer calls that wait for approval; "" if the visitor may.
func (t formToken) WhyApprove() string { return t.why(routeOfResponses, berth.MayApprove) }

func (t formToken) why(route string, needed ...berth.Permission) string {
	if t.visit == nil || t.visit.console.Access == nil {
		return ""
	}
	if t.visit.access == nil {
		r := (&http.Request{}).WithContext(t.visit.r.Context())
		t.visit.address(r)
		t.visit.access = t.visit.console.Access(r)
	}
	if err := t.visit.access(route, needed...); err != nil {
		if e, ok := errors.AsType[*berth.Error](err); ok {
			return e.Message
		}
		return err.Error()
	}
	return ""
}
