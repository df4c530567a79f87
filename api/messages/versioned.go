package messages

import (
	"net/http"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// versioned returns the route of a path that OpenAI's clients share, for clients that send anthropic-version. The
// wildcards of the pattern are whole segments.
func versioned(pattern string, h exchange.Handler, traits ...exchange.Traits) exchange.Route {
	traits = append(traits, exchange.ReadsQuery, exchange.KeyInHeader) // clients of beta features add "?beta=true"
	rt := exchange.On(pattern, nil, traits...)
	rt.Select = func(r *http.Request) bool {
		return r.Header.Get(version) != "" && r.Method == rt.Method && fillPath(nil, rt.Path, r.URL.Path)
	}
	rt.Handle = func(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
		fillPath(r, rt.Path, r.URL.Path)
		return h(x, r, c)
	}
	return rt
}

// fillPath reports whether a path has a pattern. It sets the values of the pattern's wildcards, unless r is nil.
func fillPath(r *http.Request, pattern, path string) bool {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i, segment := range want {
		name, wild := strings.CutPrefix(segment, "{")
		switch {
		case !wild && segment != got[i], wild && got[i] == "":
			return false
		case wild && r != nil:
			r.SetPathValue(strings.TrimSuffix(name, "}"), got[i])
		}
	}
	return true
}
