package preview

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// private are the headers of a request that the sandbox must not get, in lower case: above
// all the caller's key, and where the caller is. A client sends an Authorization for the
// server in the sandbox in AuthorizationHeader.
var private = regexp.MustCompile(`^(authorization|cookie|proxy-.*|forwarded|via|x-forwarded-.*|x-real-ip|x-client-ip|true-client-ip|cf-.*|referer|origin|openai-.*|berth-.*|x-amz-.*|x-goog-.*|x-accel-.*)$`)

// AuthorizationHeader is passed on as the Authorization of a request, whose own is
// the API key's.
const AuthorizationHeader = "Berth-Authorization"

// requestHeader returns what the sandbox may see of a request's header.
func requestHeader(r *http.Request, t Target, host string) http.Header {
	out := http.Header{}
	for name, values := range r.Header {
		if !private.MatchString(strings.ToLower(name)) && !hopByHop(r.Header, name) {
			out[name] = slices.Clone(values)
		}
	}
	if _, there := out["User-Agent"]; !there {
		out["User-Agent"] = []string{""} // none, rather than Go's
	}
	if own := r.Header.Values("Authorization"); t.Own && len(own) > 0 {
		out["Authorization"] = slices.Clone(own)
	}
	if own := r.Header.Values(AuthorizationHeader); len(own) > 0 {
		out["Authorization"] = slices.Clone(own)
	}
	if own := ownCookies(r, t); own != "" {
		out.Set("Cookie", own)
	}
	// A server in development answers its own pages only: this counts as one.
	if r.Header.Get("Origin") != "" {
		out.Set("Origin", "http://"+host)
	}
	return out
}

// hopByHop reports whether a header is for the next machine only (RFC 9110, 7.6.1).
func hopByHop(h http.Header, name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	for _, line := range h["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(token), name) {
				return true
			}
		}
	}
	return false
}

// passes is what of an answer's header a client gets, in lower case: what is about
// this answer. What browsers take as the word of a whole origin (its transport, its
// storage, where it sends reports, who serves it) they know by other names, which
// do not begin with x- either.
var passes = regexp.MustCompile(`^(accept-ranges|age|allow|cache-control|content-(disposition|encoding|language|length|range|type)|date|etag|expires|last-modified|location|permissions-policy|retry-after|server-timing|sourcemap|vary|x-.+|mcp-.+|connect-.+|grpc-.+)$`)

// ownPasses is what does so besides from a host of the target's own, to which it is
// confined.
var ownPasses = regexp.MustCompile(`^(content-security-policy(-report-only)?|cross-origin-(opener|embedder|resource)-policy|service-worker-allowed|link|referrer-policy)$`)

// Of x- these are orders to a proxy between the client and Berth, or Berth's own.
var orders = regexp.MustCompile(`^x-(accel-.*|sendfile.*|lighttpd-.*|litespeed-.*|reproxy-.*|request-id|ratelimit-.*|should-retry|content-security-policy.*|webkit-csp.*)$`)

// upgraded is what belongs to the answer to a WebSocket's request.
var upgraded = regexp.MustCompile(`^(connection|upgrade|sec-websocket-(accept|protocol|extensions))$`)

// policy gives a page an origin of its own, so that its scripts can run but are of another
// origin than the API.
const policy = "sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads allow-pointer-lock"

// clean removes from a sandbox's answer what a client must not get.
func clean(resp *http.Response, r *http.Request, t Target) error {
	if resp.StatusCode < http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols {
		return errors.New("the sandbox answered " + resp.Status)
	}
	h := resp.Header
	cookies := resp.Cookies()
	for name := range h {
		lower := strings.ToLower(name)
		upgrading := resp.StatusCode == http.StatusSwitchingProtocols && upgraded.MatchString(lower)
		own := t.Own && ownPasses.MatchString(lower)
		if (!passes.MatchString(lower) || orders.MatchString(lower)) && !upgrading && !own {
			delete(h, name)
		}
	}
	setCookies(h, cookies, t)
	if err := relocate(h, r, t); err != nil {
		return err
	}
	if t.Own {
		confine(h)
	} else {
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer") // the URL may be a permission
	}
	h.Set("X-Robots-Tag", "noindex, nofollow")
	cache(h)
	if t.Link {
		// To a page with an origin of its own even its own server is another's.
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Expose-Headers", "*")
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	}
	resp.Trailer = nil
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = body{resp.Body, resp}
	}
	return nil
}

// confine keeps a host of the target's own to its own pages, unless its server says
// otherwise: hosts beside it are of the same site, and their pages are others'.
func confine(h http.Header) {
	for name, value := range map[string]string{"Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "SAMEORIGIN", "Referrer-Policy": "same-origin"} {
		if h.Get(name) == "" {
			h.Set(name, value)
		}
	}
}

// cache forbids shared caches to store an answer.
func cache(h http.Header) {
	kept := []string{"private"}
	for _, line := range h.Values("Cache-Control") {
		for order := range strings.SplitSeq(line, ",") {
			order = strings.TrimSpace(order)
			name, _, _ := strings.Cut(strings.ToLower(order), "=")
			if order != "" && name != "public" && name != "s-maxage" && name != "private" {
				kept = append(kept, order)
			}
		}
	}
	h.Set("Cache-Control", strings.Join(kept, ", "))
}
