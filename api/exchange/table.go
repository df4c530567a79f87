package exchange

import (
	"net/http"
	"strings"
)

// A Table is the routes of a server. It serves each request with one of them: the first whose Host has the request's
// host, else the first whose Select accepts the request, else the one with the pattern of the path.
type Table struct {
	server    *Server
	hosts     []tableEntry
	selecting []tableEntry
	paths     *http.ServeMux
	noCORS    map[string]bool // by pattern
}

type tableEntry struct {
	Route
	serve http.HandlerFunc
}

// fallbackPath is the pattern of requests without a route.
const fallbackPath = "/"

// Table returns a table of routes, whose requests come from Handler or As.
func (s *Server) Table(routes []Route) *Table {
	t := &Table{server: s, paths: http.NewServeMux(), noCORS: map[string]bool{}}
	for _, rt := range append(routes, Public(fallbackPath, t.fallback)) {
		e := tableEntry{rt, s.Route(rt)}
		switch {
		case rt.Host != nil:
			t.hosts = append(t.hosts, e)
		case rt.Select != nil:
			t.selecting = append(t.selecting, e)
		default:
			t.paths.HandleFunc(rt.Pattern(), e.serve)
			t.noCORS[rt.Pattern()] = rt.Is(NoCORS)
		}
	}
	return t
}

// Serve serves a request.
func (t *Table) Serve(x *Exchange, r *http.Request) {
	serve, noCORS := t.find(r)
	if noCORS || !t.server.cors(x, r) {
		serve(x, r)
	}
}

// find returns the handler of a request, and whether it gets no headers of CORS: those of the hosts of routes get none,
// because these hosts are not the API.
func (t *Table) find(r *http.Request) (serve http.HandlerFunc, noCORS bool) {
	for _, e := range t.hosts {
		if e.Host(r.Host) {
			return e.serve, true
		}
	}
	for _, e := range t.selecting {
		if e.Select(r) {
			return e.serve, e.Is(NoCORS)
		}
	}
	if len(t.server.Origins) == 0 {
		return t.paths.ServeHTTP, true
	}
	_, pattern := t.paths.Handler(r)
	return t.paths.ServeHTTP, t.noCORS[pattern]
}

// fallback answers requests without a route: 405 if the path has routes with other methods, otherwise 404.
func (t *Table) fallback(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete} {
		probe := http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := t.paths.Handler(&probe); pattern != fallbackPath {
			allowed = append(allowed, method)
		}
	}
	if allowed == nil {
		writeError(w, http.StatusNotFound, Error{Type: TypeInvalid,
			Message: "This server does not serve " + r.Method + " " + r.URL.Path + "."})
		return
	}
	methods := strings.Join(allowed, ", ")
	w.Header().Set("Allow", methods)
	writeError(w, http.StatusMethodNotAllowed, Error{Type: TypeInvalid, Code: OrNull("method_not_supported"),
		Message: "Invalid method for URL (" + r.Method + " " + r.URL.Path + "). Allowed: " + methods + "."})
}
