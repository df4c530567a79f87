package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster/peer"
	"github.com/berth-run/berth/internal/forward"
	"github.com/berth-run/berth/store"
)

// callerHeader has the caller that the forwarding server has identified.
const callerHeader = "Berth-Caller"

// removePath is the path at which a server removes what it has. It is served to other servers only.
const removePath = "/cluster/remove"

// Peers is the Node of a server with others. It is safe for concurrent use.
type Peers struct {
	*Cluster
	node       *peer.Node
	proxy      *httputil.ReverseProxy
	containers atomic.Pointer[Containers] // noContainers until Keep

	mu      sync.Mutex
	removed []func(ctx context.Context) error
}

var _ Node = (*Peers)(nil)

// Connect makes this server a member, as Join does, and reaches the other members, which have the same key.
// Options.Removed is that of OnRemoved.
func Connect(ctx context.Context, key [32]byte, o Options) (*Peers, error) {
	p := &Peers{}
	var none Containers = noContainers{}
	p.containers.Store(&none)
	var err error
	if p.node, err = peer.New(key, o.Self.ID, p.addressOf); err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	p.proxy = &httputil.ReverseProxy{Transport: p.node, FlushInterval: -1, Rewrite: func(pr *httputil.ProxyRequest) {
		for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
			if own, ok := pr.In.Header[name]; ok {
				pr.Out.Header[name] = own
			}
		}
	}}
	o.Removed = p.giveUp
	if p.Cluster, err = Join(ctx, o); err != nil {
		return nil, err
	}
	return p, nil
}

// OnRemoved implements Node.
func (p *Peers) OnRemoved(f func(ctx context.Context) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removed = append(p.removed, f)
}

// giveUp gives up what the others have ended while this server was not a member.
func (p *Peers) giveUp(ctx context.Context) error {
	p.mu.Lock()
	removed := p.removed
	p.mu.Unlock()
	for _, f := range removed {
		if err := f(ctx); err != nil {
			return err
		}
	}
	return p.kept().GiveUp(ctx)
}

// addressOf returns the address of a member. It refuses one that is silent, which would not answer.
func (p *Peers) addressOf(ctx context.Context, name string) (string, error) {
	member, err := p.Member(ctx, name)
	if err != nil {
		return "", err
	}
	if !member.Alive() {
		return "", fmt.Errorf("it has been silent for %s", member.Silent.Round(time.Second))
	}
	return member.Address, nil
}

// Self implements Placement.
func (p *Peers) Self() string { return p.Cluster.Self.ID }

// Alone implements Placement.
func (p *Peers) Alone() bool { return false }

// Where implements Placement.
func (p *Peers) Where(ctx context.Context, o Object, aim Aim) (Place, error) {
	if o.Response == "" {
		return p.kept().Where(ctx, o.Project, o.Container, aim)
	}
	owner, err := p.Store.RunOwner(ctx, o.Project, o.Response)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Place{}, nil
	case err != nil:
		return Place{}, fmt.Errorf("read owner of run: %w", err)
	case owner == p.Self():
		owner = ""
	}
	return Place{Server: owner, Stored: true}, nil
}

// Alive implements Placement.
func (p *Peers) Alive(ctx context.Context, server string) (bool, error) {
	member, err := p.Member(ctx, server)
	if errors.Is(err, ErrNoMember) {
		return false, nil
	}
	return err == nil && member.Alive(), err
}

// Client implements Placement.
func (p *Peers) Client(caller berth.Caller, server string) *http.Client {
	return &http.Client{Transport: agent{p.node, caller, server}}
}

// An agent calls the API of another server for a caller.
type agent struct {
	node   *peer.Node
	caller berth.Caller
	server string
}

// RoundTrip implements http.RoundTripper.
func (a agent) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	if err := address(out, &a.caller, a.server); err != nil {
		return nil, err
	}
	return a.node.RoundTrip(out)
}

// address makes a request one to a server for a caller.
func address(r *http.Request, caller *berth.Caller, server string) error {
	r.URL.Scheme, r.URL.Host = "https", server // the peer.Node connects to the server with this name
	r.Header.Del(callerHeader)
	if caller == nil {
		return nil
	}
	text, err := json.Marshal(caller)
	if err != nil {
		return fmt.Errorf("encode caller: %w", err)
	}
	r.Header.Set(callerHeader, string(text))
	return nil
}

// Forward implements Placement.
func (p *Peers) Forward(w http.ResponseWriter, r *http.Request, caller *berth.Caller, server string) error {
	out := r.Clone(r.Context())
	if err := address(out, caller, server); err != nil {
		return err
	}
	var failed error
	proxy := *p.proxy
	proxy.ModifyResponse = func(resp *http.Response) error {
		for name := range resp.Header {
			w.Header().Del(name) // the other server has set it
		}
		return nil
	}
	proxy.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err }
	forward.Serve(proxy, w, out)
	if failed != nil {
		return unreachable(failed)
	}
	return nil
}

// unreachable returns the error for a client whose request another server must serve.
func unreachable(err error) error {
	return &berth.Error{Code: berth.CodeUnavailable, RetryAfter: 2 * time.Second, Err: err,
		Message: "The server of the cluster that has this container or response cannot be reached at the moment. Try again later."}
}

// Remove implements Placement.
func (p *Peers) Remove(ctx context.Context, server string, o Object) error {
	body, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode removal: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+server+removePath, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("remove at %s: %w", server, err)
	}
	resp, err := p.node.RoundTrip(r)
	if err != nil {
		return unreachable(fmt.Errorf("remove at %s: %w", server, err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("remove at %s: it answered %s", server, resp.Status)
	}
	return nil
}

// Serve implements Node.
func (p *Peers) Serve(ctx context.Context, listen string,
	api func(w http.ResponseWriter, r *http.Request, caller *berth.Caller),
	remove func(ctx context.Context, o Object) error,
	visit func(ctx context.Context, v Visit) (net.Conn, error)) (stop func(context.Context) error, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listen for other servers: %w", err)
	}
	p.node.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == removePath {
			p.serveRemoval(w, r, remove)
			return
		}
		if r.URL.Path == visitPath {
			serveVisit(w, r, visit)
			return
		}
		var caller *berth.Caller
		if text := r.Header.Get(callerHeader); text != "" {
			if err := json.Unmarshal([]byte(text), &caller); err != nil {
				http.Error(w, "invalid "+callerHeader, http.StatusBadRequest)
				return
			}
		}
		r.Header.Del(callerHeader)
		api(w, r, caller)
	}), p.Log)
	return func(context.Context) error { return p.node.Close() }, nil
}

// serveRemoval serves Remove.
func (p *Peers) serveRemoval(w http.ResponseWriter, r *http.Request, remove func(ctx context.Context, o Object) error) {
	var o Object
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&o); err != nil {
		http.Error(w, "invalid removal", http.StatusBadRequest)
		return
	}
	if err := remove(r.Context(), o); err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
		p.Log.Error("failed to remove for another server", "container", o.Container, "response", o.Response, "err", err)
		http.Error(w, "the removal failed", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
