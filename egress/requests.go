package egress

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/berth-run/berth/egress/allow"
)

// overrides are header fields by which frameworks take another method or path than the request line has.
var overrides = []string{"X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Original-Method",
	"X-Original-Url", "X-Original-Uri", "X-Rewrite-Url", "X-Forwarded-Uri", "X-Forwarded-Prefix", "X-Forwarded-Path"}

// checkRules returns a refusal if no rule allows a request. Without rules, every request is allowed.
func checkRules(rules []allow.Request, r *http.Request) error {
	if len(rules) == 0 {
		return nil
	}
	for name := range r.Header {
		if slices.Contains(overrides, http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))) {
			return refusal(fmt.Sprintf("the header field %s may change the request for its host", clip(name)))
		}
	}
	path, err := requestPath(r.URL)
	if err != nil {
		return err
	}
	for i := range rules {
		if rules[i].Allows(r.Method, path) {
			return nil
		}
	}
	return refusal(fmt.Sprintf("%s %s is not among the allowed requests", clip(r.Method), clip(r.URL.Path)))
}

// requestPath returns the segments of a request's path.
func requestPath(u *url.URL) ([]string, error) {
	escaped := strings.ToLower(u.EscapedPath())
	rest, ok := strings.CutPrefix(u.Path, "/")
	if !ok || strings.Contains(escaped, "%2f") { // a slash within a segment, for some hosts one between two
		return nil, refusal("the path is not one that all hosts read in the same way")
	}
	all, err := allow.Segments(rest)
	if err != nil {
		return nil, refusal("the path " + err.Error())
	}
	return all, nil
}
