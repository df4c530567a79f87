package preview

import (
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
)

// previewRoute is the route of requests to hosts of ports in metrics and logs.
const previewRoute = "preview host"

// HostRoute returns the route of the hosts below the domain of previews, where the API is not served.
func (d *Door) HostRoute() exchange.Route {
	return exchange.Route{Path: previewRoute, Identity: d.hostVisitor, Host: func(host string) bool {
		_, _, below := ParseHost(host, d.Domain)
		return below
	}}
}

// hostVisitor identifies the caller of a request to a port under its own host. The client needs a key of the project, a
// link to the port, or the cookie that was set when the link was first used.
func (d *Door) hostVisitor(x *exchange.Exchange, r *http.Request) (v exchange.Visit, err error) {
	container, port, _ := ParseHost(r.Host, d.Domain)
	if port == 0 {
		return v, berth.Errorf(berth.CodeNotFound,
			"Invalid host name. Expected PORT-CONTAINER.%s, where CONTAINER is the container's ID with a hyphen instead of the underscore.",
			d.Domain)
	}
	word, query := TakeToken(r.URL.RawQuery)
	link, key, err := d.hostLink(r, word, container, port)
	if err != nil {
		return v, err
	}
	v = exchange.Visit{Traits: exchange.ThroughContainer}
	token := exchange.Token(r)
	var secret bool // Authorization is for this server, not for the one in the sandbox
	if link != nil {
		v.Caller = berth.Caller{Project: link.Project, Key: key}
		if word != "" {
			http.SetCookie(x, PermissionCookie(word, link.ExpiresAt-d.Now().Unix(), secure(r)))
			if Visits(r) {
				v.Handle = withQuery(query)
				return v, nil
			}
		}
		if secret, err = d.isKey(r, token); err != nil {
			return v, err
		}
	} else {
		if v.Caller, err = d.identifyHost(r); err != nil {
			return v, err
		}
		secret = true
	}
	// Another server that has the container identifies the caller again, so that it gets the request as it came.
	strip := func(r *http.Request) {
		r.URL.RawQuery = query
		if secret {
			r.Header.Del("Authorization")
		}
	}
	v.Handle = func(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
		return d.show(x, r, c, Target{Container: container, Port: port, Path: r.URL.EscapedPath(), Own: true,
			Keyed: secret, Strip: strip})
	}
	return v, nil
}

// withQuery redirects a browser to the URL with the query that lacks the token, which removes the token from the
// address bar and the history.
func withQuery(query string) exchange.Handler {
	return func(x *exchange.Exchange, r *http.Request, _ berth.Caller) error {
		x.Header().Set("Cache-Control", "no-store")
		x.Header().Set("Referrer-Policy", "no-referrer")
		to := *r.URL
		to.RawQuery = query
		http.Redirect(x, r, "//"+r.Host+to.RequestURI(), http.StatusSeeOther)
		return nil
	}
}

// hostLink returns the link of a request, that of its token or of a cookie, and the link's key. It returns an
// error for an invalid token, and nil if there is neither a token nor a valid cookie.
func (d *Door) hostLink(r *http.Request, word string, container berth.ContainerID, port int) (*Link, berth.KeyID,
	error) {
	open := func(word string) (l Link, key berth.KeyID, err error) {
		l, err = Open(d.Box, word, d.Now())
		if err == nil && (l.Container != container || l.Port != port) {
			err = errors.New("the link is to another port")
		}
		if err == nil {
			key, err = d.checkLink(r, l)
		}
		return l, key, err
	}
	if word != "" {
		l, key, err := open(word)
		if err != nil {
			return nil, "", &berth.Error{Code: berth.CodeUnauthorized, Wire: "invalid_link", Err: err,
				Message: "This link is invalid or has expired. Create a new one with POST /v1/containers/{container_id}/ports/{port}."}
		}
		return &l, key, nil
	}
	for _, word := range Permissions(r) {
		l, key, err := open(word)
		if err != nil {
			continue
		}
		if !OwnPage(r) {
			return nil, "", &berth.Error{Code: berth.CodeForbidden, Wire: "origin_not_allowed",
				Message: "Requests from pages of other hosts are not allowed. Open this URL directly in the browser."}
		}
		return &l, key, nil
	}
	return nil, "", nil
}

// identifyHost returns the caller of a request to a port's host. If the server needs no
// key, it allows programs on this machine, but not pages of other hosts.
func (d *Door) identifyHost(r *http.Request) (berth.Caller, error) {
	open, err := d.Exchange.NeedsNoKey(r.Context())
	if err != nil {
		return berth.Caller{}, err
	}
	if !open {
		return d.Exchange.Identify(r, berth.MayAttach, previewRoute)
	}
	if err := exchange.CheckPeer(r); err != nil {
		return berth.Caller{}, err
	}
	if site := r.Header.Get("Sec-Fetch-Site"); !OwnPage(r) || site != "" && site != "same-origin" && site != "none" {
		return berth.Caller{}, &berth.Error{Code: berth.CodeForbidden, Wire: "origin_not_allowed",
			Message: "Without API keys, requests from pages of other hosts are not allowed. Run 'berth key create' and use a link to the port."}
	}
	return berth.Caller{Project: berth.DefaultProject}, nil
}

// isKey reports whether the token of a request's Authorization is an API key of this server. Any other is for the
// server in the sandbox.
func (d *Door) isKey(r *http.Request, token string) (bool, error) {
	if token == "" {
		return false, nil
	}
	_, err := d.Exchange.Keys.KeyByHash(r.Context(), sha256.Sum256([]byte(token)))
	switch {
	case err == nil || strings.HasPrefix(token, berth.KeyPrefix):
		return true, nil
	case errors.Is(err, berth.ErrNotFound):
		return false, nil
	}
	return false, err
}

// secure reports whether the client uses HTTPS, to this server or to a proxy in front of it.
func secure(r *http.Request) bool { return strings.HasPrefix(Origin(r), "https:") }

// hostURL returns the URL of a link under the port's own host, or "" without a domain.
func (d *Door) hostURL(r *http.Request, l Link, word string) string {
	if d.Domain == "" {
		return ""
	}
	host := Host(l.Container, l.Port, d.Domain)
	if host == "" {
		return ""
	}
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		host = net.JoinHostPort(host, port)
	}
	scheme, _, _ := strings.Cut(Origin(r), ":")
	return scheme + "://" + host + "/?" + TokenParam + "=" + word
}
