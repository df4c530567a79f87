package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/cluster/peer"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/store"
)

// ClusterConfig makes a server one of several that share a PostgreSQL database and a bucket.
type ClusterConfig struct {
	// Listen is the address at which the other servers reach this one. Default: there are no
	// others.
	Listen string `yaml:"listen"`

	// Address is what the others connect to: host:port. Default: Listen, if its host is one.
	Address string `yaml:"address"`

	// Lease is how long a server may be silent before others continue its responses.
	// Default: 15s.
	Lease time.Duration `yaml:"lease"`

	// Absence is how long a silent server's containers wait for its return before they end.
	// Default: 5m.
	Absence time.Duration `yaml:"absence"`
}

// address returns what other servers connect to.
func (c ClusterConfig) address() string { return cmp.Or(c.Address, c.Listen) }

// checkCluster checks what a cluster needs.
func (c *Config) checkCluster() error {
	k := c.Cluster
	if k.Listen == "" {
		if k.Address != "" {
			return errors.New("cluster.address: it needs cluster.listen, such as 0.0.0.0:7443")
		}
		return nil
	}
	var wrong []error
	if c.Store.URL == "" {
		wrong = append(wrong,
			errors.New("cluster: servers share a database: set store to the URL of a PostgreSQL database"))
	}
	if c.Blobs == "" {
		wrong = append(wrong,
			errors.New("cluster: servers share files and snapshots: set blobs to the URL of a bucket"))
	}
	host, port, err := net.SplitHostPort(k.address())
	if ip := net.ParseIP(host); err != nil || host == "" || port == "" || port == "0" || ip != nil &&
		ip.IsUnspecified() {
		wrong = append(wrong,
			fmt.Errorf("cluster.address: %q is not an address that other servers can connect to; set it to host:port",
				k.address()))
	}
	return errors.Join(wrong...)
}

// members is this server's place in its cluster.
type members struct {
	*cluster.Cluster
	store.Members
	node       *peer.Node
	proxy      *httputil.ReverseProxy
	lease      time.Duration
	containers atomic.Pointer[container.Service] // nil until they are started
	quota      atomic.Pointer[project.Quota]     // nil until it is shared
}

// joinCluster makes the server a member, if the configuration says so.
func (s *Server) joinCluster(ctx context.Context, b *base) error {
	config := b.Config.Cluster
	if config.Listen == "" {
		return nil
	}
	db, ok := b.disk.(store.Members)
	if !ok {
		return errors.New("cluster: the database cannot be shared")
	}
	m := &members{Members: db, lease: config.Lease}
	silence := config.Absence
	if movable[b.Config.Driver] {
		silence = 0 // its containers need not wait
	}
	var err error
	if m.node, err = peer.New(b.key, b.node, m.addressOf); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	m.proxy = &httputil.ReverseProxy{Transport: m.node, FlushInterval: -1, Rewrite: func(pr *httputil.ProxyRequest) {
		for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
			if own, ok := pr.In.Header[name]; ok {
				pr.Out.Header[name] = own
			}
		}
	}}
	m.Cluster, err = cluster.Join(ctx, cluster.Options{Store: db,
		Self:  store.Member{ID: b.node, Address: config.address(), Version: b.Build.Version},
		Lease: m.lease, Silence: silence, Log: b.Log,
		Removed: func(ctx context.Context) error {
			if quota := m.quota.Load(); quota != nil {
				quota.ForgetShares()
			}
			if containers := m.containers.Load(); containers != nil {
				return containers.GiveUp(ctx)
			}
			return nil
		}})
	if err != nil {
		return err
	}
	b.cluster = m
	s.later(m.Cluster.Close)
	return nil
}

// share makes the limits of projects hold for all servers of the cluster together.
func (m *members) share(ctx context.Context, s *Server, b *base) error {
	db, ok := b.disk.(store.Shares)
	if !ok {
		return errors.New("cluster: the database cannot divide limits")
	}
	until, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.later(func(context.Context) error { stop(); return nil })
	running := func(p berth.ProjectID) int {
		if containers := m.containers.Load(); containers != nil {
			return containers.Running(p)
		}
		return 0
	}
	if err := b.quota.Share(until, db, b.node, running, b.Log); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	m.quota.Store(b.quota)
	return nil
}

// addressOf returns the address of a member. It refuses one that is silent, which would not answer.
func (m *members) addressOf(ctx context.Context, name string) (string, error) {
	member, err := m.Member(ctx, name)
	if err != nil {
		return "", err
	}
	if !member.Alive() {
		return "", fmt.Errorf("it has been silent for %s", member.Silent.Round(time.Second))
	}
	return member.Address, nil
}

// works reports whether the lease of a server has not ended.
func (m *members) works(ctx context.Context, name string) (bool, error) {
	member, err := m.Member(ctx, name)
	if errors.Is(err, cluster.ErrNoMember) {
		return false, nil
	}
	return err == nil && member.Alive(), err
}

// use sets the containers of this server, and ends those of servers that do not return.
func (m *members) use(s *Server, containers *container.Service) {
	m.containers.Store(containers)
	if containers.Moves() {
		m.takeOver(s, containers)
		return
	}
	s.later(m.Singleton("members", func(ctx context.Context) {
		for again := true; ; { // a former holder may have died before it ended the containers
			removed, err := m.RemoveSilent(ctx)
			if again = again || len(removed) > 0; again && err == nil {
				err = containers.EndLost(ctx, func(server string) bool {
					_, err := m.Member(ctx, server)
					return !errors.Is(err, cluster.ErrNoMember)
				})
				again = err != nil
			}
			if err != nil && ctx.Err() == nil {
				s.log.Error("failed to end what silent servers had; will retry", "err", err)
			}
			if backoff.Sleep(ctx, m.lease/2) != nil {
				return
			}
		}
	}))
}

// takeOver removes servers whose leases have ended, and takes their containers over.
func (m *members) takeOver(s *Server, containers *container.Service) {
	every := m.lease / 3
	s.later(m.Singleton("members", func(ctx context.Context) {
		for {
			if _, err := m.RemoveSilent(ctx); err != nil && ctx.Err() == nil {
				s.log.Error("failed to remove silent servers; will retry", "err", err)
			}
			if backoff.Sleep(ctx, every) != nil {
				return
			}
		}
	}))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var former []store.Member
		for again := true; ; { // a former server may have died before it took the containers over
			present := m.Cluster.Members()
			if again = again || lost(former, present); again {
				err := containers.TakeOver(ctx, func(server string) bool {
					_, err := m.Member(ctx, server)
					return !errors.Is(err, cluster.ErrNoMember)
				})
				if again = err != nil; again && ctx.Err() == nil {
					s.log.Error("failed to take over what lost servers had; will retry", "err", err)
				}
			}
			former = present
			if backoff.Sleep(ctx, every) != nil {
				return
			}
		}
	}()
	s.later(func(context.Context) error {
		stop()
		<-done
		return nil
	})
}

// lost reports whether a former member is not present.
func lost(former, present []store.Member) bool {
	return slices.ContainsFunc(former, func(f store.Member) bool {
		return !slices.ContainsFunc(present, func(p store.Member) bool { return p.ID == f.ID })
	})
}

// callerHeader has the caller that the forwarding server has identified.
const callerHeader = "Berth-Caller"

// serve serves requests that other servers forward.
func (m *members) serve(ctx context.Context, s *Server, own remover, listen string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("cluster.listen: %w", err)
	}
	m.node.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == removePath {
			own.serveRemove(w, r)
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
		s.handler.ServeHTTP(w, r.WithContext(exchange.Forwarded(r.Context(), caller)))
	}), s.log)
	s.later(func(context.Context) error { return m.node.Close() })
	return nil
}

// Resumes implements engine.Others.
func (m *members) Resumes(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (bool, error) {
	return m.containers.Load().Resumes(ctx, p, id)
}

// Locate implements exchange.Peers.
func (m *members) Locate(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (string, error) {
	return m.containers.Load().Locate(ctx, p, id)
}

// Self implements exchange.Peers.
func (m *members) Self() string { return m.Cluster.Self.ID }

// Alive implements exchange.Peers.
func (m *members) Alive(ctx context.Context, server string) (bool, error) {
	member, err := m.Member(ctx, server)
	if errors.Is(err, cluster.ErrNoMember) {
		return false, nil
	}
	return err == nil && member.Alive(), err
}

// Stored implements exchange.Peers.
func (m *members) Stored(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (bool, error) {
	_, err := m.RunOwner(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Client implements exchange.Peers.
func (m *members) Client(caller berth.Caller, server string) *http.Client {
	return &http.Client{Transport: agent{m, caller, server}}
}

// An agent calls the API of another server for a caller.
type agent struct {
	*members
	caller berth.Caller
	server string
}

// RoundTrip implements http.RoundTripper.
func (a agent) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	if err := a.address(out, &a.caller, a.server); err != nil {
		return nil, err
	}
	return a.node.RoundTrip(out)
}

// address makes a request one to a server for a caller.
func (m *members) address(r *http.Request, caller *berth.Caller, server string) error {
	r.URL.Scheme, r.URL.Host = "https", server // node connects to the server with this name
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

// Forward implements exchange.Peers.
func (m *members) Forward(w http.ResponseWriter, r *http.Request, caller *berth.Caller, server string) error {
	out := r.Clone(r.Context())
	if err := m.address(out, caller, server); err != nil {
		return err
	}
	var failed error
	proxy := *m.proxy
	proxy.ModifyResponse = func(resp *http.Response) error {
		for name := range resp.Header {
			w.Header().Del(name) // the other server has set it
		}
		return nil
	}
	proxy.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err }
	proxy.ServeHTTP(w, out)
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
