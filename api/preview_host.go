package api

import (
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/preview"
	"github.com/berth-run/berth/store"
)

// previewRoute is what figures call requests to the hosts of ports.
const previewRoute = "preview host"

// atHost serves a request to a host below the domain of previews, where there is
// nothing of the API. It reports false for other hosts.
func (s *server) atHost(x *exchange.Exchange, r *http.Request) bool {
	container, port, below := preview.ParseHost(r.Host, s.PreviewDomain)
	if !below {
		return false
	}
	r.Pattern = previewRoute
	if err := s.showHost(x, r, container, port); err != nil {
		x.Fail(r.Context(), previewRoute, err)
	}
	return true
}

// showHost shows a port under its own host, to whoever may see it: who bears a key of
// the project, has a link to the port, or the cookie that the link's first visit left.
func (s *server) showHost(x *exchange.Exchange, r *http.Request, container berth.ContainerID, port int) error {
	if port == 0 {
		return berth.Errorf(berth.CodeNotFound, "No port of a container is shown under this name.")
	}
	word, query := preview.TakeToken(r.URL.RawQuery)
	r.URL.RawQuery = query
	link, err := s.hostLink(r, word, container, port)
	if err != nil {
		return err
	}
	if link != nil && word != "" {
		http.SetCookie(x, preview.PermissionCookie(word, link.ExpiresAt-s.Now().Unix(), secure(r)))
		if preview.Visits(r) {
			x.Header().Set("Cache-Control", "no-store")
			x.Header().Set("Referrer-Policy", "no-referrer")
			http.Redirect(x, r, "//"+r.Host+r.URL.RequestURI(), http.StatusSeeOther) // the token is a permission: not to be seen, nor kept in a history
			return nil
		}
	}
	var project berth.ProjectID
	keyed := exchange.Token(r) != ""
	if link != nil {
		project = link.Project
		x.SetCaller(berth.Caller{Project: project})
		if err := s.dropKey(r); err != nil {
			return err
		}
		keyed = keyed && exchange.Token(r) == "" // another token is for the server in the sandbox
	} else {
		caller, err := s.identifyHost(r)
		if err != nil {
			return err
		}
		project = caller.Project
		x.SetCaller(caller)
		r.Header.Del("Authorization") // what let the caller in
		keyed = true
	}
	return s.show(x, r, project, preview.Target{Container: container, Port: port, Path: r.URL.EscapedPath(), Own: true, Keyed: keyed})
}

// hostLink returns the link that permits a request: its token's, or a cookie's. A token
// must permit it; without any, and without a cookie that does, it is nil.
func (s *server) hostLink(r *http.Request, word string, container berth.ContainerID, port int) (*preview.Link, error) {
	open := func(word string) (*preview.Link, error) {
		l, err := preview.Open(s.Seal, word, s.Now())
		if err == nil && (l.Container != container || l.Port != port) {
			err = errors.New("the link is to another port")
		}
		if err == nil {
			err = s.checkLink(r, l)
		}
		return &l, err
	}
	if word != "" {
		l, err := open(word)
		if err != nil {
			return nil, &berth.Error{Code: berth.CodeUnauthorized, Wire: "invalid_link", Err: err, Message: "This link has expired or is not valid."}
		}
		return l, nil
	}
	for _, word := range preview.Permissions(r) {
		l, err := open(word)
		if err != nil {
			continue
		}
		if !preview.OwnPage(r) {
			return nil, &berth.Error{Code: berth.CodeForbidden, Wire: "origin_not_allowed", Message: "Pages of other hosts may not use this one's permission."}
		}
		return l, nil
	}
	return nil, nil
}

// identifyHost says who asks for a port under its own host. Without keys that is who is
// on this machine and no page of another host.
func (s *server) identifyHost(r *http.Request) (berth.Caller, error) {
	open, err := s.ex.NeedsNoKey(r.Context())
	if err != nil {
		return berth.Caller{}, err
	}
	if !open {
		return s.ex.Identify(r)
	}
	if err := exchange.CheckPeer(r); err != nil {
		return berth.Caller{}, err
	}
	if site := r.Header.Get("Sec-Fetch-Site"); !preview.OwnPage(r) || site != "" && site != "same-origin" && site != "none" {
		return berth.Caller{}, &berth.Error{Code: berth.CodeForbidden, Wire: "origin_not_allowed", Message: "Without API keys this server shows ports to no pages of other hosts."}
	}
	return berth.Caller{Project: berth.DefaultProject}, nil
}

// dropKey takes the Authorization out of a request if it is a key of this server.
// Another is the page's own, for its server in the sandbox.
func (s *server) dropKey(r *http.Request) error {
	token := exchange.Token(r)
	if token == "" {
		return nil
	}
	_, err := s.Keys.KeyByHash(r.Context(), sha256.Sum256([]byte(token)))
	switch {
	case err == nil || strings.HasPrefix(token, berth.KeyPrefix):
		r.Header.Del("Authorization")
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	return nil
}

// secure reports whether the client speaks HTTPS, to this server or to one before it.
func secure(r *http.Request) bool { return strings.HasPrefix(origin(r), "https:") }

// hostURL returns the URL of a link under the port's own host, "" without a domain.
func (s *server) hostURL(r *http.Request, l preview.Link, word string) string {
	if s.PreviewDomain == "" {
		return ""
	}
	host := preview.Host(l.Container, l.Port, s.PreviewDomain)
	if host == "" {
		return ""
	}
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		host = net.JoinHostPort(host, port)
	}
	scheme, _, _ := strings.Cut(origin(r), ":")
	return scheme + "://" + host + "/?" + preview.TokenParam + "=" + word
}
