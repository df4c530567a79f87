package exchange

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Identify returns the caller of a request. It fails if the request must not be served.
func (s *Server) Identify(r *http.Request) (berth.Caller, error) {
	caller, err := s.bearer(r)
	if err == nil {
		err = s.CheckProject(r.Context(), caller.Project)
	}
	return caller, err
}

// CheckProject refuses the requests of a project that has been archived.
func (s *Server) CheckProject(ctx context.Context, p berth.ProjectID) error {
	if s.Quota == nil {
		return nil
	}
	return s.Quota.Check(ctx, p)
}

// NeedsNoKey reports whether the server serves its own machine without a key. It fails if
// the store does.
func (s *Server) NeedsNoKey(ctx context.Context) (bool, error) { return s.open.is(ctx) }

// bearer returns the owner of the key that a request bears. With keys in the store a
// request must bear one of them. Without, a program on this machine is the default
// project's owner, and all other requests are refused.
//
// OpenAI-Organization and OpenAI-Project headers are accepted and mean nothing:
// a key belongs to one project.
func (s *Server) bearer(r *http.Request) (berth.Caller, error) {
	token := Token(r)
	if token != "" {
		hash := sha256.Sum256([]byte(token))
		key, err := s.Keys.KeyByHash(r.Context(), hash)
		if err == nil && subtle.ConstantTimeCompare(key.Hash[:], hash[:]) == 1 {
			if key.ExpiresAt != 0 && key.ExpiresAt <= time.Now().Unix() {
				return berth.Caller{}, errExpired
			}
			return berth.Caller{Project: key.Project, Key: key.ID}, nil
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return berth.Caller{}, err
		}
	}
	open, err := s.open.is(r.Context())
	if err != nil {
		return berth.Caller{}, err
	}
	if open {
		return berth.Caller{Project: berth.DefaultProject}, checkLocal(r)
	}
	if token == "" {
		return berth.Caller{}, berth.Errorf(berth.CodeUnauthorized,
			"You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).")
	}
	return berth.Caller{}, &berth.Error{Code: berth.CodeUnauthorized, Wire: "invalid_api_key",
		Message: "Incorrect API key provided. 'berth key create' on the server makes a new one."}
}

// errExpired answers a request whose key was valid until it expired. Other requests
// cannot learn that there was one.
var errExpired = &berth.Error{Code: berth.CodeUnauthorized, Wire: "invalid_api_key",
	Message: "The API key provided has expired. 'berth key create' on the server makes a new one."}

// Token returns the token of the Authorization header, "" without one.
func Token(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// checkLocal refuses a request to a server without keys that does not come from
// a program of this machine. Being on the machine is not enough: a browser is,
// and carries requests of any web page. So the peer must be loopback, without a
// proxy between; the name that was dialled must be a loopback name, or a page
// could have its own name resolve to this machine; and no other origin may ask.
func checkLocal(r *http.Request) error {
	if err := CheckPeer(r); err != nil {
		return err
	}
	if !LoopbackHost(r.Host) {
		return &berth.Error{Code: berth.CodeForbidden, Wire: "host_not_allowed",
			Message: "Without API keys this server answers to localhost and loopback addresses only. Run 'berth key create' to use other names."}
	}
	origin := r.Header.Get("Origin")
	site := r.Header.Get("Sec-Fetch-Site")
	if origin != "" && origin != "http://"+r.Host && origin != "https://"+r.Host ||
		site != "" && site != "same-origin" && site != "none" {
		return &berth.Error{Code: berth.CodeForbidden, Wire: "origin_not_allowed",
			Message: "Without API keys this server answers no web pages. Run 'berth key create' to use it from a browser's program."}
	}
	return nil
}

// CheckPeer refuses a request that does not come straight from this machine.
func CheckPeer(r *http.Request) error {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() || forwarded(r.Header) {
		return berth.Errorf(berth.CodeUnauthorized,
			"This server has no API keys yet and serves its own machine only. Run 'berth key create' there to let others in.")
	}
	return nil
}

// forwarded reports whether a proxy passed the request on. Where it came from is then
// unverified.
func forwarded(h http.Header) bool {
	for name := range h {
		if slices.Contains(proxyHeaders, name) || slices.ContainsFunc(proxyPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			return true
		}
	}
	return false
}

// The headers that proxies and tunnels add, in canonical form.
var (
	proxyHeaders = []string{"Forwarded", "Via", "Cdn-Loop", "Client-Ip", "Fastly-Client-Ip", "Fly-Client-Ip", "True-Client-Ip",
		"X-Amzn-Trace-Id", "X-Appengine-User-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Host", "X-Original-Forwarded-For",
		"X-Original-Host", "X-Original-Url", "X-Originating-Ip", "X-Proxyuser-Ip", "X-Real-Ip", "X-Remote-Addr", "X-Remote-Ip", "X-Rewrite-Url"}
	proxyPrefixes = []string{"Cf-", "X-Arr-", "X-Azure-", "X-Envoy-", "X-Forwarded", "X-Proxy-", "Tailscale-"}
)

// LoopbackHost reports whether a Host header names this machine to itself.
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

// openFor is how long the answer to "are there keys?" is cached. Another process, the
// command line, makes the first one.
const openFor = time.Second

// openness is whether the server needs no key. That is decided at its start: once
// there has been a key it stays closed, also when the last one is removed.
type openness struct {
	keys interface {
		ListKeys(context.Context) ([]*berth.Key, error)
	}

	mu     sync.Mutex
	closed bool // it does not open again
	until  time.Time
}

// is reports whether the server is open. It fails if the store does.
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
