package preview

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// errElsewhere is of an answer that would lead the client, with its key, to the API
// or to another program of the client's or the server's machine.
var errElsewhere = errors.New("the sandbox redirected to a place that is not its own")

// relocate makes the Location of an answer one of the target's own outside. One that
// names another machine stays.
func relocate(h http.Header, r *http.Request, t Target) error {
	line := h.Get("Location")
	if line == "" {
		delete(h, "Location")
		return nil
	}
	path, query, _ := strings.Cut(t.Path, "?")
	at := &url.URL{Scheme: "http", Host: net.JoinHostPort("localhost", strconv.Itoa(t.Port)), RawPath: path, RawQuery: query}
	at.Path, _ = url.PathUnescape(path)
	to, err := at.Parse(strings.ReplaceAll(line, `\`, "/")) // as browsers read it
	if err != nil || to.User != nil || to.Opaque != "" || to.Scheme != "http" && to.Scheme != "https" {
		return errElsewhere
	}
	name := strings.TrimSuffix(strings.ToLower(to.Hostname()), ".")
	own := here(name) && to.Port() == strconv.Itoa(t.Port) || t.Own && name == hostname(r.Host)
	switch {
	case own && t.Prefix == "" && strings.HasPrefix(to.EscapedPath(), "//"):
		return errElsewhere // it would name a machine, and perhaps the reader's
	case own && !climbs(to.Path):
		outside := t.Prefix + to.EscapedPath()
		if to.Path == "" {
			outside = t.Prefix + "/"
		}
		if to.RawQuery != "" {
			outside += "?" + to.RawQuery
		}
		if to.Fragment != "" {
			outside += "#" + to.EscapedFragment()
		}
		h.Set("Location", outside)
		return nil
	case here(name) || name == "" || name == hostname(r.Host) || strings.HasSuffix(name, "."+hostname(r.Host)):
		return errElsewhere
	}
	h.Set("Location", to.String())
	return nil
}

// climbs reports whether a path, unescaped, leads out of where it is put, in
// anybody's reading.
func climbs(path string) bool {
	return slices.Contains(strings.FieldsFunc(path, func(c rune) bool { return c == '/' || c == '\\' }), "..")
}

// here reports whether a name is whoever reads it: a client must not be sent to
// what listens on its own machine.
func here(name string) bool {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && (ip.Unmap().IsLoopback() || ip.IsUnspecified())
}

func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}
