package server

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/egress/proxy"
	"github.com/berth-run/berth/enduser"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/people"
	"github.com/berth-run/berth/people/oidc"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/retention"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/outbound"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/store/transient"
)

// base holds the parts that all others use.
type base struct {
	Options
	space *diskspace.Guard
	node  string          // the server's name on leases
	keys  *seal.Keychain  // of seal.key
	lock  *state.SealLock // held while the server runs

	rotating sync.Mutex // held while the seal key is rotated

	cluster cluster.Node
	disk    state.Database // the database of the state directory
	db      store.Store    // disk, and responses that are not to be stored; without the deletion of held objects

	unguarded store.Store // db with that
	holds     *retention.Holds
	retention *retention.Service

	audit   *audit.Log
	quota   *project.Quota
	callers store.Keys // of db, and the tokens of people
	users   *enduser.Service
	people  *people.Service // who have signed in
	door    *oidc.Door      // where people sign in; nil if they do not
	tracer  trace.Tracer    // nil if traces are not exported
	proxies *proxy.Selector // nil without proxies
}

// openBase locks the state directory, unless o.start has locked it, and opens its database and
// audit record.
func (s *Server) openBase(ctx context.Context, o Options) (*base, error) {
	b := &base{Options: o}
	var err error
	if b.start == nil {
		if b.start, err = prepare(o.State, o.Config, o.Log); err != nil {
			return nil, err
		}
	}
	s.later(func(context.Context) error { return b.start.close() })
	b.space = b.start.space
	if b.node, err = state.NodeID(o.State); err != nil {
		return nil, err
	}
	if b.lock, err = state.LockSealKey(ctx, o.State); err != nil {
		return nil, fmt.Errorf("lock seal key: %w", err)
	}
	s.later(func(context.Context) error { return b.lock.Close() })
	b.disk, err = state.OpenDatabase(ctx, o.State,
		state.Use{Options: sqlite.Options{Synchronous: o.Config.Store.Synchronous, Log: o.Log, Room: b.space},
			URL:   o.Config.Store.URL,
			Serve: true, Shared: o.Config.Cluster.Listen != "", Lock: b.lock})
	if err != nil {
		return nil, err
	}
	keys, err := state.ReadSealKeys(o.State)
	if err != nil {
		return nil, errors.Join(err, b.disk.Close())
	}
	b.keys = keys.Keychain()
	b.db = transient.New(b.disk, o.Log)
	b.guardHolds()
	s.later(func(context.Context) error { return b.db.Close() })
	if err := s.joinCluster(ctx, b); err != nil {
		return nil, err
	}
	s.startScrubbing(b)
	apiKeys, err := b.db.ListKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	s.open, s.unused = len(apiKeys) == 0 && !o.Config.Server.AwaitKey && !o.Config.SignIn.Enabled(), len(apiKeys) == 0
	if b.audit, err = state.OpenAudit(o.State, o.Log); err != nil {
		return nil, err
	}
	s.record = b.audit
	if !b.cluster.Alone() {
		if err := s.saveCheckpoints(b); err != nil {
			return nil, err
		}
	}
	s.later(func(context.Context) error { return b.audit.Close() })
	b.audit.OnFull(b.space.MakeRoom)
	if b.proxies, err = outbound.Open(o.Config); err != nil {
		return nil, err
	}
	s.proxies = b.proxies
	if err := s.startForwarding(b); err != nil {
		return nil, err
	}
	if b.tracer, err = s.startTracing(ctx, b); err != nil {
		return nil, err
	}
	b.retention = newRetention(b)
	b.users = newEndUsers(b)
	b.quota = newQuota(b.db, b.State, o.Config)
	if err := s.shareLimits(ctx, b); err != nil {
		return nil, err
	}
	s.openSignIn(b)
	s.reloader.quota, s.spending = b.quota, b.spending
	return b, nil
}

// newQuota returns the quota of projects.
func newQuota(db store.Store, dir string, config *config.Config) *project.Quota {
	return project.NewQuota(project.QuotaOptions{Objects: db, Usages: db, Keys: db, Limits: config.ProjectLimits(),
		Sizes: state.StoredSizes(db, dir), Currency: config.Currency})
}

// spending returns what all projects and their keys have spent in the present month.
func (b *base) spending(ctx context.Context) ([]project.Spend, error) {
	spent, _, _, err := b.quota.Spending(ctx, "")
	return spent, err
}
