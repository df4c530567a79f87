package preview

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
)

// relocate rewrites the Location of an answer. A redirect to the target itself gets the
// path under which the client sees the target. A redirect to another origin is allowed only
// for clients without an API key, and only to a public host whose name is unambiguous. For
// all others, relocate returns an error, which replaces the answer.
func relocate(h http.Header, r *http.Request, t Target) error {
	line := h.Get("Location")
	if line == "" {
		delete(h, "Location")
		return nil
	}
	to, host, err := readLocation(line, t)
	if err != nil {
		return refuseRedirect(line, t)
	}
	own := host.loopback() && to.Port() == strconv.Itoa(t.Port) || t.Own && host.name == hostname(r.Host)
	switch {
	case own && climbs(to.Path), own && t.Prefix == "" && strings.HasPrefix(to.EscapedPath(), "//"):
		return refuseRedirect(line, t) // a path that begins with // names a host
	case own:
		h.Set("Location", outside(to, t.Prefix))
		return nil
	case t.Keyed || !host.public() || host.name == hostname(r.Host) || strings.HasSuffix(host.name,
		"."+hostname(r.Host)):
		return refuseRedirect(line, t)
	}
	port := to.Port()
	if to.Host = host.text(); port != "" {
		to.Host += ":" + port
	}
	h.Set("Location", to.String())
	return nil
}

// readLocation parses a Location relative to the URL that the target's server has got.
func readLocation(line string, t Target) (*url.URL, host, error) {
	path, query, _ := strings.Cut(t.Path, "?")
	at := &url.URL{Scheme: "http", Host: net.JoinHostPort("localhost", strconv.Itoa(t.Port)), RawPath: path,
		RawQuery: query}
	at.Path, _ = url.PathUnescape(path)
	end := strings.IndexAny(line, "?#")
	if end < 0 {
		end = len(line)
	}
	to, err := at.Parse(strings.ReplaceAll(line[:end], `\`, "/") + line[end:]) // as browsers do
	if err != nil {
		return nil, host{}, fmt.Errorf("parse location: %w", err)
	}
	if to.User != nil || to.Opaque != "" || to.Scheme != "http" && to.Scheme != "https" {
		return nil, host{}, fmt.Errorf("not a plain http URL: %q", line)
	}
	name, err := parseHost(to)
	return to, name, err
}

// outside returns the path, query and fragment of a URL of the target below a prefix.
func outside(to *url.URL, prefix string) string {
	path := to.EscapedPath()
	if path == "" {
		path = "/"
	}
	path = prefix + path
	if to.RawQuery != "" {
		path += "?" + to.RawQuery
	}
	if to.Fragment != "" {
		path += "#" + to.EscapedFragment()
	}
	return path
}

// refuseRedirect returns the error for a Location that is not allowed.
func refuseRedirect(line string, t Target) error {
	const most = 200
	if len(line) > most {
		line = line[:most] + "…"
	}
	rule := "Only redirects to the same port or to a public host are allowed."
	if t.Keyed {
		rule = "With an API key, only redirects to the same port are allowed. Create a link to the port to follow redirects to public hosts."
	}
	return &berth.Error{Code: berth.CodeUpstream, Wire: "redirect_refused", Message: fmt.Sprintf(
		"The server on port %d of container with id '%s' redirected to %s. %s", t.Port, t.Container,
		strconv.QuoteToASCII(line), rule)}
}

// A host is the host of a URL: an address, or a name in lower case.
type host struct {
	name string
	addr netip.Addr
}

func (h host) text() string {
	if h.addr.Is6() {
		return "[" + h.name + "]"
	}
	return h.name
}

// loopback reports whether a host is the client's own machine.
func (h host) loopback() bool {
	if h.addr.IsValid() {
		return h.addr.Unmap().IsLoopback() || h.addr.IsUnspecified()
	}
	return h.name == "localhost" || strings.HasSuffix(h.name, ".localhost")
}

// public reports whether a host is a public address or may be a name in the public DNS.
func (h host) public() bool {
	if h.addr.IsValid() {
		return egress.Public(h.addr)
	}
	at := strings.LastIndexByte(h.name, '.')
	return at > 0 && !slices.Contains(notPublic, h.name[at+1:]) && !strings.HasSuffix(h.name, ".home.arpa")
}

// notPublic are top-level labels that are not in the public DNS and that networks use for
// their own machines.
var notPublic = []string{"localhost", "localdomain", "local", "internal", "intranet", "private", "lan", "home", "corp",
	"mail", "test", "invalid"}

// climbs reports whether an unescaped path contains "..", with which it could leave its prefix.
func climbs(path string) bool {
	return slices.Contains(strings.FieldsFunc(path, func(c rune) bool { return c == '/' || c == '\\' }), "..")
}

// hostname returns the name or address in a Host header.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}
