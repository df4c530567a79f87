package exchange

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
)

// Identify returns the caller of a request to a route that it names by its pattern, as scopes do, or an error for the
// client if the request must be refused: also for a caller without one of the permissions. Doors use it for requests
// that the table of routes does not know, such as the messages of a WebSocket.
func (s *Server) Identify(r *http.Request, needed berth.Permission, pattern string) (berth.Caller, error) {
	rt := On(pattern, nil)
	rt.Permission = needed
	if f, ok := r.Context().Value(forwardedKey{}).(arrival); ok && f.caller != nil {
		c, err := s.recheck(r.Context(), *f.caller, &rt)
		return s.withSubject(r, c, err)
	}
	c, err := s.identifyFor(r, &rt)
	return s.withSubject(r, c, err)
}

// Access returns why the caller of a request may not use a route, or nil. It identifies the caller once.
func (s *Server) Access(r *http.Request) func(rt Route) error {
	c, err := s.callerOf(r, Token(r))
	return func(rt Route) error {
		if err != nil {
			return err
		}
		return permit(c, &rt)
	}
}

// recheck checks a caller that was identified before, and returns it with what it may do now.
func (s *Server) recheck(ctx context.Context, c berth.Caller, rt *Route) (berth.Caller, error) {
	c, err := s.current(ctx, c)
	if err == nil {
		err = permit(c, rt)
	}
	if err != nil {
		return berth.Caller{}, err
	}
	return c, s.CheckProject(ctx, c.Project)
}

// identifyFor returns the caller of a request to a route.
func (s *Server) identifyFor(r *http.Request, rt *Route) (berth.Caller, error) {
	token := Token(r)
	if token == "" && rt.Is(KeyInHeader) {
		token = strings.TrimSpace(r.Header.Get("X-Api-Key"))
	}
	caller, err := s.callerOf(r, token)
	if err == nil {
		err = permit(caller, rt)
	}
	if err == nil {
		err = s.CheckProject(r.Context(), caller.Project)
	}
	return caller, err
}

// permit refuses a caller without a permission for a route. A route without a permission refuses everyone.
func permit(c berth.Caller, rt *Route) error {
	const organization = berth.MayReadOrganization | berth.MayManageOrganization
	err := berth.Forbidden(rt.Permission)
	switch {
	case !c.May(rt.Permission) && rt.Permission&^organization == 0 && !c.Admin():
		err.Message += " Use an admin key, which 'berth key create --admin' on the server creates."
	case !c.May(rt.Permission) && c.Admin() && rt.Permission&organization == 0:
		err.Message += " An admin key only serves routes under /v1/organization. Use a key of a project."
	case !c.May(rt.Permission):
	case c.Scope != nil && !c.Scope.Permits(rt.Pattern()):
		err.Message = "You have insufficient permissions for this operation. The scope of this API key does not have the route '" +
			rt.Pattern() + "'."
	default:
		return nil
	}
	return err
}

// identify returns the caller of an exchange.
func (s *Server) identify(x *Exchange, r *http.Request, rt *Route) (berth.Caller, error) {
	if !x.known {
		c, err := s.identifyFor(r, rt)
		return s.withSubject(r, c, err)
	}
	c, err := s.recheck(r.Context(), x.caller, rt)
	return s.withSubject(r, c, err)
}

// withSubject adds the end user that the headers of a request name to its caller, unless err says that there is none.
func (s *Server) withSubject(r *http.Request, c berth.Caller, err error) (berth.Caller, error) {
	if err != nil || s.EndUsers == nil || c.Admin() {
		return c, err
	}
	return s.EndUsers.FromHeader(r.Context(), c, r.Header.Get)
}

// current returns a caller with what its key may do now. It refuses one whose key was deleted or has expired.
func (s *Server) current(ctx context.Context, c berth.Caller) (berth.Caller, error) {
	if c.Key == "" { // the server had no keys
		c.Permissions, c.Scope = berth.AllPermissions(c.Project), nil
		return c, nil
	}
	key, err := s.Keys.KeyOf(ctx, c)
	if errors.Is(err, berth.ErrNotFound) {
		return c, &berth.Error{Code: berth.CodeUnauthorized, Wire: "invalid_api_key",
			Message: "The API key that started this work was deleted. Start it again with another key."}
	}
	if err == nil {
		err = checkKey(key)
	}
	if err != nil {
		return c, err
	}
	now := key.Caller()
	c.Permissions, c.Scope, c.Person = now.Permissions, now.Scope, now.Person
	return c, nil
}

// checkKey refuses a key that has expired or whose owner has no access any more.
func checkKey(k *berth.Key) error {
	switch {
	case k.Expired(time.Now().Unix()):
		return errExpired
	case k.Lost():
		return errLost
	}
	return nil
}

// CheckProject refuses the requests of a project that has been archived.
func (s *Server) CheckProject(ctx context.Context, p berth.ProjectID) error {
	if s.Quota == nil {
		return nil
	}
	return s.Quota.Check(ctx, p)
}

// NeedsNoKey reports whether the server accepts requests from its own machine without a key.
func (s *Server) NeedsNoKey(ctx context.Context) (bool, error) { return s.open.is(ctx) }

// callerOf returns the caller with the key of a request. If the store has keys, a request must
// have one of them. If not, programs on this machine act for the default project, and all
// other requests are refused.
//
// The headers OpenAI-Organization and OpenAI-Project have no effect: each key belongs to one
// project.
func (s *Server) callerOf(r *http.Request, token string) (berth.Caller, error) {
	if token != "" {
		hash := sha256.Sum256([]byte(token))
		key, err := s.Keys.KeyByHash(r.Context(), hash)
		if err == nil && subtle.ConstantTimeCompare(key.Hash[:], hash[:]) == 1 {
			if err := checkKey(key); err != nil {
				return berth.Caller{}, err
			}
			if s.Used != nil && key.Session == "" {
				s.Used(key)
			}
			return key.Caller(), nil
		}
		if err != nil && !errors.Is(err, berth.ErrNotFound) {
			return berth.Caller{}, err
		}
	}
	open, err := s.open.is(r.Context())
	if err != nil {
		return berth.Caller{}, err
	}
	if open {
		return berth.Caller{Project: berth.DefaultProject, Permissions: berth.AllPermissions(berth.DefaultProject)},
			checkLocal(r)
	}
	if token == "" {
		return berth.Caller{}, berth.Errorf(berth.CodeUnauthorized,
			"You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).")
	}
	return berth.Caller{}, &berth.Error{Code: berth.CodeUnauthorized, Wire: "invalid_api_key",
		Message: "Incorrect API key provided. You can create a new key with 'berth key create' on the server."}
}

// errExpired is the answer to a request with an expired key. Only a client that knows the
// key learns that it existed.
var errExpired = &berth.Error{Code: berth.CodeUnauthorized, Wire: "invalid_api_key",
	Message: "The API key provided has expired. You can create a new key with 'berth key create' on the server."}

// errLost is the answer to a request with a key whose owner has no access any more.
var errLost = &berth.Error{Code: berth.CodeUnauthorized, Wire: "invalid_api_key",
	Message: "The owner of this API key has no access to its project any more. Ask the operator of the server for another key."}

// Token returns the Bearer token of the Authorization header, or "".
func Token(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// checkLocal refuses requests to a server without keys, except those from programs on this
// machine. A loopback peer alone is not enough, because a browser on this machine sends
// requests of any web page. So there must be no proxy in between, the Host must be a
// loopback name (a page could let its own name resolve to this machine), and requests of
// other origins are refused.
func checkLocal(r *http.Request) error {
	if err := CheckPeer(r); err != nil {
		return err
	}
	if !LoopbackHost(r.Host) {
		return &berth.Error{Code: berth.CodeForbidden, Wire: "host_not_allowed",
			Message: "Without API keys, this server can only be reached as localhost or a loopback address. Run 'berth key create' to use other names."}
	}
	origin := r.Header.Get("Origin")
	site := r.Header.Get("Sec-Fetch-Site")
	if origin != "" && origin != "http://"+r.Host && origin != "https://"+r.Host ||
		site != "" && site != "same-origin" && site != "none" {
		return &berth.Error{Code: berth.CodeForbidden, Wire: "origin_not_allowed",
			Message: "Without API keys, this server refuses requests of web pages. Run 'berth key create' to use it from a browser."}
	}
	return nil
}

// CheckPeer refuses a request that does not come directly from this machine.
func CheckPeer(r *http.Request) error {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() || forwarded(r.Header) {
		return berth.Errorf(berth.CodeUnauthorized,
			"This server has no API keys yet and accepts requests from its own machine only. Run 'berth key create' there to use it from other machines.")
	}
	return nil
}

// forwarded reports whether a proxy has forwarded the request. Its origin is then unknown.
func forwarded(h http.Header) bool {
	for name := range h {
		if slices.Contains(proxyHeaders, name) || slices.ContainsFunc(proxyPrefixes, func(p string) bool {
			return strings.HasPrefix(name, p)
		}) {
			return true
		}
	}
	return false
}

// Headers that proxies and tunnels add, in canonical form.
var (
	proxyHeaders = []string{"Forwarded", "Via", "Cdn-Loop", "Client-Ip", "Fastly-Client-Ip", "Fly-Client-Ip",
		"True-Client-Ip",
		"X-Amzn-Trace-Id", "X-Appengine-User-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Host",
		"X-Original-Forwarded-For",
		"X-Original-Host", "X-Original-Url", "X-Originating-Ip", "X-Proxyuser-Ip", "X-Real-Ip", "X-Remote-Addr",
		"X-Remote-Ip", "X-Rewrite-Url"}
	proxyPrefixes = []string{"Cf-", "X-Arr-", "X-Azure-", "X-Envoy-", "X-Forwarded", "X-Proxy-", "Tailscale-"}
)

// LoopbackHost reports whether a Host header is localhost or a loopback address.
func LoopbackHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))
	return err == nil && ip.Unmap().IsLoopback()
}

// openFor is how long the absence of keys is cached. Another process, the command line,
// may create the first key.
const openFor = time.Second

// openness is the state of a server that may need no key. Once the server has seen a key,
// it needs one until it is restarted, even if the last key is removed.
type openness struct {
	keys interface {
		ListKeys(context.Context) ([]*berth.Key, error)
	}

	mu     sync.Mutex
	closed bool // never becomes false again
	until  time.Time
}

// is reports whether the server needs no key.
func (o *openness) is(ctx context.Context) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || time.Now().Before(o.until) {
		return !o.closed, nil
	}
	keys, err := o.keys.ListKeys(ctx)
	if err != nil {
		return false, err
	}
	o.closed, o.until = len(keys) > 0, time.Now().Add(openFor)
	return !o.closed, nil
}

// EndUsers knows the end users for whom clients send requests; *enduser.Service is one.
type EndUsers interface {
	// FromHeader adds to a caller the end user that the headers of its request name, if the caller's project has end
	// users turned on.
	FromHeader(ctx context.Context, c berth.Caller, header func(name string) string) (berth.Caller,
		error)
}

// Keys are the keys of the API; store.Keys has them.
type Keys interface {
	// KeyByHash returns the key whose secret has this SHA-256, or berth.ErrNotFound.
	KeyByHash(ctx context.Context, hash [32]byte) (*berth.Key, error)
	// KeyOf returns the key of a caller by its id and project, or berth.ErrNotFound.
	KeyOf(ctx context.Context, c berth.Caller) (*berth.Key, error)
	ListKeys(ctx context.Context) ([]*berth.Key, error)
}

// IsKey reports whether a text is the secret of a key.
func IsKey(ctx context.Context, keys Keys, text string) (bool, error) {
	_, err := keys.KeyByHash(ctx, sha256.Sum256([]byte(text)))
	if errors.Is(err, berth.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up key: %w", err)
	}
	return true, nil
}

// Origin returns this server's origin as the request states it, unverified.
func Origin(r *http.Request) string {
	if r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}
