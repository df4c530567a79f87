package allow

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// A Request allows requests with a method and a path to a host, which Rules allow. If a policy has one for a host,
// it allows no other request to that host, and nothing that is not HTTP.
type Request struct {
	Methods []string // sorted; nil: all
	Host    string   // as Rule.Name: exact, or "*." and a domain for all names below it
	path    []string // the segments between slashes; "*" is any one, "**" any number of them
	text    string
}

func (r Request) String() string { return r.text }

// Bounds on a request rule, and on the path of a request that is compared with it.
const (
	maxRequest  = 512
	maxSegments = 128
)

// ParseRequest parses a rule such as "GET api.example.com/repos/**" or "GET,POST *.example.com/v1/*/items". The
// method "*" is any; GET allows HEAD as well. Its errors are for the client.
func ParseRequest(s string) (Request, error) {
	methods, rest, ok := strings.Cut(s, " ")
	host, path, hasPath := strings.Cut(rest, "/")
	if !ok || !hasPath || len(s) > maxRequest {
		return Request{}, fmt.Errorf("%q is not a method, a host and a path, such as %q", short(s),
			"GET api.example.com/repos/**")
	}
	r := Request{text: s}
	if methods != "*" {
		for m := range strings.SplitSeq(methods, ",") {
			if !httpguts.ValidHeaderFieldName(m) || m != strings.ToUpper(m) {
				return Request{}, fmt.Errorf("%q is not a method in capital letters", short(m))
			}
			r.Methods = append(r.Methods, m)
			if m == "GET" {
				r.Methods = append(r.Methods, "HEAD")
			}
		}
		slices.Sort(r.Methods)
		r.Methods = slices.Compact(r.Methods)
	}
	name, err := Parse(host)
	if err != nil || name.Name == "" || name.Name == "*" || len(name.Ports) > 0 {
		return Request{}, fmt.Errorf("%q is not a host name or *.name", short(host))
	}
	r.Host = name.Name
	if strings.ContainsAny(path, "?#%") {
		return Request{}, fmt.Errorf("the path %q must be plain text, without a query and %%", short("/"+path))
	}
	if r.path, err = Segments(path); err != nil {
		return Request{}, fmt.Errorf("the path %q %w", short("/"+path), err)
	}
	for _, segment := range r.path {
		if strings.Contains(segment, "*") && segment != "*" && segment != "**" {
			return Request{}, fmt.Errorf("the path %q has a %q: * and ** stand for whole segments", short("/"+path),
				short(segment))
		}
	}
	return r, nil
}

// Allows reports whether a rule for the host of a request allows it. path are its segments.
func (r *Request) Allows(method string, path []string) bool {
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

// Segments splits a decoded path after its first slash. It refuses what hosts read in different ways, so that no
// request means another path to its host than to a rule: dots, empty segments, backslashes, parameters with dots, and
// what a second decoding would turn into one of them.
func Segments(path string) ([]string, error) {
	odd := func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }
	if !utf8.ValidString(path) || strings.ContainsFunc(path, odd) {
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

// short shortens a text for a message.
func short(s string) string { return s[:min(len(s), 100)] }
