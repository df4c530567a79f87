package exchange

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// exposed are the headers of answers that a page may read, beside those that every page may.
const exposed = "Content-Disposition, ETag, Location, Mcp-Session-Id, Retry-After, retry-after-ms, openai-processing-ms, openai-version, x-request-id, x-should-retry, " +
	"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"

// preflightLife is the number of seconds for which a browser may cache a permission.
const preflightLife = "7200"

// headerNames matches the headers of a request that a page wants to send.
var headerNames = regexp.MustCompile(`^[A-Za-z0-9-]+( *, *[A-Za-z0-9-]+)*$`)

const maxHeaderNames = 4096 // bytes

// foreign are headers that choose the answer of a program in a sandbox, at an address of the API. No page may send
// them.
var foreign = []string{"e2b-sandbox-id", "e2b-sandbox-port"}

// allowed returns the headers that a page may send, of those that it wants to send.
func allowed(names string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(names, ","), func(name string) bool {
		return slices.Contains(foreign, strings.ToLower(strings.TrimSpace(name)))
	}), ",")
}

// cors adds the headers with which a browser lets pages of Origins use the API. It reports whether
// the request was a preflight, which it has answered.
//
// No answer allows credentials: a page sends an API key, and cookies have no effect.
func (s *Server) cors(w http.ResponseWriter, r *http.Request) (answered bool) {
	if len(s.Origins) == 0 {
		return false
	}
	preflight := r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
	h := w.Header()
	origin := r.Header.Get("Origin")
	anywhere := slices.Contains(s.Origins, "*")
	if !anywhere {
		h.Add("Vary", "Origin")
	}
	switch {
	case origin == "" || !anywhere && !slices.Contains(s.Origins, origin):
		return false
	case anywhere:
		h.Set("Access-Control-Allow-Origin", "*")
	default:
		h.Set("Access-Control-Allow-Origin", origin)
	}
	if !preflight {
		h.Set("Access-Control-Expose-Headers", exposed)
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	if names := r.Header.Get("Access-Control-Request-Headers"); len(names) <= maxHeaderNames &&
		headerNames.MatchString(names) {
		h.Set("Access-Control-Allow-Headers", allowed(names))
		h.Add("Vary", "Access-Control-Request-Headers")
	}
	h.Set("Access-Control-Max-Age", preflightLife)
	w.WriteHeader(http.StatusNoContent)
	return true
}
