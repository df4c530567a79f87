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
// path under which the client sees the target. A redirect to another origin passes only
// if the client holds no API key, and only to a public host whose name has one reading.
// For all others relocate returns an error, which replaces the answer.
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
	case t.Keyed || !host.public() || host.name == hostname(r.Host) || strings.HasSuffix(host.name, "."+hostname(r.Host)):
		return refuseRedirect(line, t)
	}
	port := to.Port()
	if to.Host = host.text(); port != "" {
		to.Host += ":" + port
	}
	h.Set("Location", to.String())
	return nil
}

// readLocation parses a Location against the URL under which the target's server sees
// itself.
func readLocation(line string, t Target) (*url.URL, host, error) {
	path, query, _ := strings.Cut(t.Path, "?")
	at := &url.URL{Scheme: "http", Host: net.JoinHostPort("localhost", strconv.Itoa(t.Port)), RawPath: path, RawQuery: query}
	at.Path, _ = url.PathUnescape(path)
	end := strings.IndexAny(line, "?#")
	if end < 0 {
		end = len(line)
	}
	to, err := at.Parse(strings.ReplaceAll(line[:end], `\`, "/") + line[end:]) // as browsers read it
	if err != nil {
		return nil, host{}, err
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

// refuseRedirect returns the error for a Location that is not passed on.
func refuseRedirect(line string, t Target) error {
	const most = 200
	if len(line) > most {
		line = line[:most] + "…"
	}
	rule := "Redirects may lead to the same port, or to a public host."
	if t.Keyed {
		rule = "With an API key redirects may lead to the same port only; open other places through a link to the port."
	}
	return &berth.Error{Code: berth.CodeUpstream, Wire: "redirect_refused", Message: fmt.Sprintf(
		"What listens on port %d of container with id '%s' redirected to %s. %s", t.Port, t.Container, strconv.QuoteToASCII(line), rule)}
}

// A host is where a URL leads: an address, or else a name in lower case.
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

// loopback reports whether a host names the client's own machine.
func (h host) loopback() bool {
	if h.addr.IsValid() {
		return h.addr.Unmap().IsLoopback() || h.addr.IsUnspecified()
	}
	return h.name == "localhost" || strings.HasSuffix(h.name, ".localhost")
}

// public reports whether a host is a public address, or a name that the public DNS may
// have.
func (h host) public() bool {
	if h.addr.IsValid() {
		return egress.Public(h.addr)
	}
	at := strings.LastIndexByte(h.name, '.')
	return at > 0 && !slices.Contains(notPublic, h.name[at+1:]) && !strings.HasSuffix(h.name, ".home.arpa")
}

// notPublic are the last labels of names that the public DNS will never have, and which
// networks use for machines of their own.
var notPublic = []string{"localhost", "localdomain", "local", "internal", "intranet", "private", "lan", "home", "corp", "mail", "test", "invalid"}

// climbs reports whether a path, unescaped, leads out of the prefix it is put below.
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
