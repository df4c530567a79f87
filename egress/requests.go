package egress

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// A RequestRule allows requests with a method and a path to a host, which Rules allow. If a policy has one for a host,
// it allows no other request to that host, and nothing that is not HTTP.
type RequestRule struct {
	Methods []string // sorted; nil: all
	Host    string   // as Rule.Name: exact, or "*." and a domain for all names below it
	path    []string // the segments between slashes; "*" is any one, "**" any number of them
	text    string
}

func (r RequestRule) String() string { return r.text }

// Bounds on a request rule, and on the path of a request that is compared with it.
const (
	maxRequestRule = 512
	maxSegments    = 128
)

// ParseRequestRule parses a rule such as "GET api.example.com/repos/**" or "GET,POST *.example.com/v1/*/items". The
// method "*" is any; GET allows HEAD as well. Its errors are for the client.
func ParseRequestRule(s string) (RequestRule, error) {
	methods, rest, ok := strings.Cut(s, " ")
	host, path, hasPath := strings.Cut(rest, "/")
	if !ok || !hasPath || len(s) > maxRequestRule {
		return RequestRule{}, fmt.Errorf("%q is not a method, a host and a path, such as %q", clip(s),
			"GET api.example.com/repos/**")
	}
	r := RequestRule{text: s}
	if methods != "*" {
		for m := range strings.SplitSeq(methods, ",") {
			if !httpguts.ValidHeaderFieldName(m) || m != strings.ToUpper(m) {
				return RequestRule{}, fmt.Errorf("%q is not a method in capital letters", clip(m))
			}
			r.Methods = append(r.Methods, m)
			if m == http.MethodGet {
				r.Methods = append(r.Methods, http.MethodHead)
			}
		}
		slices.Sort(r.Methods)
		r.Methods = slices.Compact(r.Methods)
	}
	name, err := ParseRule(host)
	if err != nil || name.Name == "" || name.Name == "*" || len(name.Ports) > 0 {
		return RequestRule{}, fmt.Errorf("%q is not a host name or *.name", clip(host))
	}
	r.Host = name.Name
	if strings.ContainsAny(path, "?#%") {
		return RequestRule{}, fmt.Errorf("the path %q must be plain text, without a query and %%", clip("/"+path))
	}
	if r.path, err = segments(path); err != nil {
		return RequestRule{}, fmt.Errorf("the path %q %w", clip("/"+path), err)
	}
	for _, segment := range r.path {
		if strings.Contains(segment, "*") && segment != "*" && segment != "**" {
			return RequestRule{}, fmt.Errorf("the path %q has a %q: * and ** stand for whole segments", clip("/"+path),
				clip(segment))
		}
	}
	return r, nil
}

// allows reports whether a rule for the host of a request allows it. path are its segments.
func (r *RequestRule) allows(method string, path []string) bool {
	return (r.Methods == nil || slices.Contains(r.Methods, method)) && matchSegments(r.path, path)
}

// matchSegments reports whether a path matches a pattern. It takes at most len(pattern) times len(path) steps.
func matchSegments(pattern, path []string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(path) {
		switch {
		case p < len(pattern) && pattern[p] == "**":
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == "*" && path[i] != "" || pattern[p] == path[i]):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	return p == len(pattern)
}

// segments splits a decoded path after its first slash. It refuses what hosts read in different ways, so that no
// request means another path to its host than to a rule: dots, empty segments, backslashes, parameters with dots, and
// what a second decoding would turn into one of them.
func segments(path string) ([]string, error) {
	if !utf8.ValidString(path) || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }) {
		return nil, fmt.Errorf("has characters that hosts read in different ways")
	}
	lower := strings.ToLower(path)
	for _, twice := range []string{"%2e", "%2f", "%5c", "%25", "%00"} {
		if strings.Contains(lower, twice) {
			return nil, fmt.Errorf("is encoded twice")
		}
	}
	all := strings.Split(path, "/")
	if len(all) > maxSegments {
		return nil, fmt.Errorf("has more than %d segments", maxSegments)
	}
	for i, segment := range all {
		name, _, _ := strings.Cut(segment, ";")
		if strings.Trim(name, ". ") == "" && (segment != "" || i < len(all)-1) {
			return nil, fmt.Errorf("has an empty segment, or one of dots")
		}
	}
	return all, nil
}

// requestsFor returns the rules for the requests to a host; none if they are not restricted.
func (p *Policy) requestsFor(host string) (found []RequestRule) {
	for _, r := range p.Requests {
		if (Rule{Name: r.Host}).HasName(host) {
			found = append(found, r)
		}
	}
	return found
}

// overrides are header fields by which frameworks take another method or path than those of the request line.
var overrides = []string{"X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Original-Method",
	"X-Original-Url", "X-Original-Uri", "X-Rewrite-Url", "X-Forwarded-Uri", "X-Forwarded-Prefix", "X-Forwarded-Path"}

// checkRules returns a refusal if no rule allows a request. Without rules, every request is allowed.
func checkRules(rules []RequestRule, r *http.Request) error {
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
		if rules[i].allows(r.Method, path) {
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
	all, err := segments(rest)
	if err != nil {
		return nil, refusal("the path " + err.Error())
	}
	return all, nil
}
