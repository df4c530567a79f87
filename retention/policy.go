// Package retention ends the objects of projects when they reach the age that a policy allows, and holds objects that
// must not be deleted.
//
// A Service knows the policies. Its Sweep deletes old objects, in batches. Each batch has a record in the store,
// which is written before the first deletion, and an entry in the audit record, so that a crash neither loses nor
// doubles any (Sweep). Holds are checked by a Guard around the store and by the services that delete more than rows.
package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/store"
)

// A Policy is the retention of the configuration, for a project or for all.
type Policy struct {
	ExpireAfter map[berth.Retained]time.Duration
	Store       *bool // false: nothing is stored that has a field "store". Nil: as for all projects
}

// Options are a Service's parts.
type Options struct {
	Objects store.Objects
	Audit   Auditor
	Holds   *Holds
	Server  string // this server's name in its cluster

	// Policies are the configuration, by project; "" applies to projects and kinds without a value.
	Policies map[berth.ProjectID]Policy

	// Sources delete the objects of each kind but audit. Required for Sweep, as the next one.
	Sources map[berth.Retained]Source
	// Projects returns the ids of all projects.
	Projects func(context.Context) ([]berth.ProjectID, error)

	Log   *slog.Logger
	Clock clock.Clock // default clock.System
}

// An Auditor records actions; *audit.Log is one.
type Auditor interface {
	Commit(ctx context.Context, entries ...audit.Entry) error
	Latest(ctx context.Context, q audit.Query) (entries []*audit.Entry, more bool, err error)
	Checkpoint() string
}

// A Service knows the retention of projects. It is safe for concurrent use.
type Service struct{ Options }

// New returns a service.
func New(o Options) *Service {
	if o.Clock == nil {
		o.Clock = clock.System
	}
	return &Service{o}
}

// builtIn are the policies of kinds that always end.
var builtIn = map[berth.Retained]time.Duration{berth.RetainedTraces: berth.TraceLife * time.Second}

// configured returns the policy of the configuration for a project.
func (s *Service) configured(p berth.ProjectID) Policy {
	merged := Policy{ExpireAfter: maps.Clone(builtIn), Store: s.Policies[""].Store}
	maps.Copy(merged.ExpireAfter, s.Policies[""].ExpireAfter)
	maps.Copy(merged.ExpireAfter, s.Policies[p].ExpireAfter)
	if own := s.Policies[p].Store; own != nil {
		merged.Store = own
	}
	return merged
}

func settingsKey() store.ObjectKey { return store.ObjectKey{Kind: store.KindRetention, ID: "settings"} }

// own returns what a project sets for itself.
func (s *Service) own(ctx context.Context, p berth.ProjectID) (berth.RetentionSettings, error) {
	var own berth.RetentionSettings
	o, err := s.Objects.GetObject(ctx, p, settingsKey())
	if errors.Is(err, store.ErrNotFound) {
		return own, nil
	}
	if err != nil {
		return own, fmt.Errorf("read the retention of %s: %w", p, err)
	}
	if err := json.Unmarshal(o.Body, &own); err != nil {
		return own, fmt.Errorf("decode the retention of %s: %w", p, err)
	}
	return own, nil
}

// Get returns the retention of a project. Of two values for a kind, the shorter applies.
func (s *Service) Get(ctx context.Context, p berth.ProjectID) (*berth.Retention, error) {
	own, err := s.own(ctx, p)
	if err != nil {
		return nil, err
	}
	configured := s.configured(p)
	r := &berth.Retention{Object: "retention", ExpireAfter: map[berth.Retained]int64{}, Own: own,
		Store: (configured.Store == nil || *configured.Store) && (own.Store == nil || *own.Store)}
	for kind, life := range configured.ExpireAfter {
		r.ExpireAfter[kind] = int64(life / time.Second)
	}
	for kind, seconds := range own.ExpireAfter {
		if most, limited := r.ExpireAfter[kind]; !limited || seconds < most {
			r.ExpireAfter[kind] = seconds
		}
	}
	return r, nil
}

// Set replaces what the project of a caller sets for itself. It refuses longer times than the configuration allows.
func (s *Service) Set(ctx context.Context, c berth.Caller, own berth.RetentionSettings) (*berth.Retention, error) {
	configured := s.configured(c.Project)
	for _, kind := range slices.Sorted(maps.Keys(own.ExpireAfter)) {
		field, seconds := "expire_after."+string(kind), own.ExpireAfter[kind]
		most, limited := configured.ExpireAfter[kind]
		switch {
		case kind == berth.RetainedAudit:
			return nil, berth.Invalid(field, "The audit record is the server's: its operator sets how long it is retained.")
		case limited && seconds > int64(most/time.Second):
			return nil, berth.Invalid(field, "Invalid '%s': this server retains %s for %d seconds at most.", field, kind,
				int64(most/time.Second))
		}
	}
	if own.Store != nil && *own.Store && configured.Store != nil && !*configured.Store {
		return nil, berth.Invalid("store", "Invalid 'store': this server does not store responses of this project.")
	}
	body, err := json.Marshal(own)
	if err != nil {
		return nil, fmt.Errorf("encode the retention of %s: %w", c.Project, err)
	}
	err = s.Audit.Commit(ctx, audit.Entry{Action: audit.RetentionUpdated, Project: c.Project, Key: c.Key,
		Person: c.Person, Reason: string(body)})
	if err != nil {
		return nil, fmt.Errorf("record the retention of %s: %w", c.Project, err)
	}
	err = s.Objects.CreateObjects(ctx, c.Project, &store.Object{ObjectKey: settingsKey(),
		CreatedAt: s.Clock.Now().Unix(), Body: body})
	if errors.Is(err, store.ErrExists) {
		_, err = s.Objects.UpdateObject(ctx, c.Project, settingsKey(), func(o *store.Object) error {
			o.Body = body
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("save the retention of %s: %w", c.Project, err)
	}
	return s.Get(ctx, c.Project)
}

// Life returns how long a project retains objects of a kind; 0 means without a limit.
func (s *Service) Life(ctx context.Context, p berth.ProjectID, kind berth.Retained) (time.Duration, error) {
	r, err := s.Get(ctx, p)
	if err != nil {
		return 0, err
	}
	return time.Duration(r.ExpireAfter[kind]) * time.Second, nil
}

// Stores reports whether a project stores responses and chat completions.
func (s *Service) Stores(ctx context.Context, p berth.ProjectID) (bool, error) {
	r, err := s.Get(ctx, p)
	if err != nil {
		return false, err
	}
	return r.Store, nil
}
