package preview

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// private matches the request headers that the sandbox must not get, in lower case: above
// all the caller's key and location. A client that needs to send an Authorization to the
// server in the sandbox uses AuthorizationHeader.
var private = regexp.MustCompile(
	`^(authorization|cookie|proxy-.*|forwarded|via|x-forwarded-.*|x-real-ip|x-client-ip|true-client-ip|cf-.*|referer|origin|openai-.*|berth-.*|x-amz-.*|x-goog-.*|x-accel-.*)$`)

// AuthorizationHeader is forwarded as the Authorization header, because the request's own
// contains the API key.
const AuthorizationHeader = "Berth-Authorization"

// requestHeader returns the header of a request as the sandbox gets it.
func requestHeader(r *http.Request, t Target) http.Header {
	out := http.Header{}
	for name, values := range r.Header {
		if !private.MatchString(strings.ToLower(name)) && !hopByHop(r.Header, name) {
			out[name] = slices.Clone(values)
		}
	}
	if _, there := out["User-Agent"]; !there {
		out["User-Agent"] = []string{""} // otherwise, the transport adds Go's
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
	// Development servers accept requests of their own pages only.
	if origin := r.Header.Get("Origin"); origin != "" {
		out.Set("Origin", "http://"+t.host())
		if t.Public && !ofHost(origin, r.Host) {
			out.Set("Origin", origin) // the server decides
		}
	}
	return out
}

// ofHost reports whether an origin is that of a host, by HTTP or HTTPS.
func ofHost(origin, host string) bool {
	return origin == "http://"+host || origin == "https://"+host
}

// hopByHop reports whether a header applies to one connection only (RFC 9110, 7.6.1).
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

// passes matches the headers of an answer that are forwarded to the client, in lower case:
// those about the answer itself. Headers that apply to a whole origin (its transport,
// storage, reports or alternative services) have other names, which do not start with x-.
var passes = regexp.MustCompile(
	`^(accept-ranges|age|allow|cache-control|content-(disposition|encoding|language|length|range|type)|date|etag|expires|last-modified|location|permissions-policy|retry-after|server-timing|sourcemap|vary|x-.+|mcp-.+|connect-.+|grpc-.+)$`)

// ownPasses matches headers that are also forwarded from a target with its own host. They
// affect that host only.
var ownPasses = regexp.MustCompile(
	`^(content-security-policy(-report-only)?|cross-origin-(opener|embedder|resource)-policy|service-worker-allowed|link|referrer-policy)$`)

// publicPasses matches headers that are also forwarded from a target that anyone may use: with
// them its server lets pages of other origins read its answers.
var publicPasses = regexp.MustCompile(`^(access-control-.+|timing-allow-origin)$`)

// orders matches x- headers that are commands to a proxy in front of Berth, or Berth's own.
var orders = regexp.MustCompile(
	`^x-(accel-.*|sendfile.*|lighttpd-.*|litespeed-.*|reproxy-.*|request-id|ratelimit-.*|should-retry|content-security-policy.*|webkit-csp.*)$`)

// upgraded matches the headers of the answer to a WebSocket request.
var upgraded = regexp.MustCompile(`^(connection|upgrade|sec-websocket-(accept|protocol|extensions))$`)

// policy gives a page a unique origin, so that its scripts can run but cannot access the API.
const policy = "sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads allow-pointer-lock"

// clean removes from a sandbox's answer the headers that a client must not get, and adds
// those that confine it.
func clean(resp *http.Response, r *http.Request, t Target) error {
	if resp.StatusCode < http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols {
		return errors.New("the sandbox answered " + resp.Status)
	}
	h := resp.Header
	cookies := resp.Cookies()
	for name := range h {
		lower := strings.ToLower(name)
		upgrading := resp.StatusCode == http.StatusSwitchingProtocols && upgraded.MatchString(lower)
		own := t.Own && ownPasses.MatchString(lower) || t.Public && publicPasses.MatchString(lower)
		if (!passes.MatchString(lower) || orders.MatchString(lower)) && !upgrading && !own {
			delete(h, name)
		}
	}
	setCookies(h, cookies, t)
	if err := relocate(h, r, t); err != nil {
		return err
	}
	switch {
	case t.Public:
	case t.Own:
		confine(h)
	default:
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer") // the URL may contain a link, which is a secret
	}
	h.Set("X-Robots-Tag", "noindex, nofollow")
	cache(h)
	if t.Link {
		// For a page with a unique origin, requests to its own server are cross-origin.
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

// confine makes browsers load a host's content only from its own pages, unless its server
// decides otherwise. The pages of sibling hosts belong to other sandboxes, but to the same
// site.
func confine(h http.Header) {
	for name, value := range map[string]string{"Cross-Origin-Resource-Policy": "same-origin",
		"X-Frame-Options": "SAMEORIGIN", "Referrer-Policy": "same-origin"} {
		if h.Get(name) == "" {
			h.Set(name, value)
		}
	}
}

// cache forbids shared caches to store an answer.
func cache(h http.Header) {
	directives := []string{"private"}
	for _, line := range h.Values("Cache-Control") {
		for order := range strings.SplitSeq(line, ",") {
			order = strings.TrimSpace(order)
			name, _, _ := strings.Cut(strings.ToLower(order), "=")
			if order != "" && name != "public" && name != "s-maxage" && name != "private" {
				directives = append(directives, order)
			}
		}
	}
	h.Set("Cache-Control", strings.Join(directives, ", "))
}
