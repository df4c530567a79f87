// Package enduser knows the end users of projects: the people for whom a client with a key of the project sends
// requests.
//
// A client names a user and a chat in headers or fields of its requests (Sources). The user's record is created with
// the first such request. What is created for the user is linked to the record, so that it can be counted, limited
// and deleted (Forget). A name is believed only if the project has end users turned on, and means nothing outside the
// project.
package enduser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// Options are a Service's parts.
type Options struct {
	Objects store.Objects
	Audit   Auditor

	Enabled     bool // for projects without a setting
	Sources     Sources
	Computer    berth.EndUserComputer // for projects without a setting; default berth.ComputerNone
	IdleMinutes int                   // of these containers
	Limits      berth.EndUserLimits   // of users and projects without limits
	Currency    string                // in messages

	// Removers delete the objects of users, by the prefixes of the names of their links. Required for Forget.
	Removers map[string]Remover
	// Snapshots returns a page of the snapshots of a project.
	Snapshots func(ctx context.Context, p berth.ProjectID, page store.Page) ([]*berth.Snapshot, bool, error)

	// Held returns an error for the client if anything of a user must not be deleted. Nil: nothing is held.
	Held func(ctx context.Context, p berth.ProjectID, id berth.EndUserID) error

	Log   *slog.Logger
	Clock clock.Clock // default clock.System
}

// A Remover deletes an object of a project. An object that does not exist is berth.CodeNotFound or store.ErrNotFound.
type Remover func(ctx context.Context, c berth.Caller, id string) error

// An Auditor records actions; *audit.Log is one.
type Auditor interface {
	Commit(ctx context.Context, entries ...audit.Entry) error
	Checkpoint() string
}

// A Service knows the end users of projects. It is safe for concurrent use.
type Service struct {
	Options
	settings settingsCache
}

// New returns a service.
func New(o Options) *Service {
	if o.Clock == nil {
		o.Clock = clock.System
	}
	if o.Computer == "" {
		o.Computer = berth.ComputerNone
	}
	return &Service{Options: o}
}

// A record is the stored state of a user.
type record struct {
	berth.EndUser
	Deletion *deletion `json:"deletion,omitempty"` // since the user is being forgotten
}

func key(id berth.EndUserID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindEndUser, ID: string(id)}
}

// read returns the record of a user, or store.ErrNotFound.
func (s *Service) read(ctx context.Context, p berth.ProjectID, id berth.EndUserID) (*record, error) {
	o, err := s.Objects.GetObject(ctx, p, key(id))
	if err != nil {
		return nil, err
	}
	return decode(o)
}

func decode(o *store.Object) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(o.Body, r); err != nil {
		return nil, fmt.Errorf("decode end user %s: %w", o.ID, err)
	}
	return r, nil
}

// change changes the record of a user, and when the sweep looks at it next, and returns it.
func (s *Service) change(ctx context.Context, p berth.ProjectID, id berth.EndUserID,
	change func(*record) (next time.Time, err error)) (*record, error) {
	var r *record
	_, err := s.Objects.UpdateObject(ctx, p, key(id), func(o *store.Object) (err error) {
		if r, err = decode(o); err != nil {
			return err
		}
		next, err := change(r)
		if err != nil {
			return err
		}
		if o.ExpiresAt = 0; !next.IsZero() {
			o.ExpiresAt = next.Unix()
		}
		o.Body, err = json.Marshal(r)
		return err
	})
	if err != nil {
		return nil, clientError(err, id)
	}
	return r, nil
}

// clientError returns the client's error for a user who is not known.
func clientError(err error, id berth.EndUserID) error {
	if errors.Is(err, store.ErrNotFound) {
		return berth.NotFound("End user", rule.Clip(string(id)))
	}
	return err
}

// Ensure creates the record of the end user of a caller, if there is one and it has none, and returns the caller with
// the user's limits. It refuses a user who is being forgotten.
func (s *Service) Ensure(ctx context.Context, c berth.Caller) (berth.Caller, error) {
	if c.Subject == nil {
		return c, nil
	}
	of := *c.Subject
	r, err := s.read(ctx, c.Project, of.EndUser)
	if errors.Is(err, store.ErrNotFound) {
		r, err = s.create(ctx, c.Project, &of)
	}
	if err == nil && r.Deletion != nil && r.Deletion.Recorded && !r.Deletion.Closing {
		r, err = s.revive(ctx, c.Project, &of)
	}
	if err != nil {
		return c, fmt.Errorf("read end user: %w", err)
	}
	if r.Deletion != nil {
		return c, beingForgotten(of.EndUser)
	}
	settings, err := s.Settings(ctx, c.Project)
	if err != nil {
		return c, err
	}
	of.Limits = r.Limits.Or(settings.Limits)
	c.Subject = &of
	return c, nil
}

func beingForgotten(id berth.EndUserID) error {
	return &berth.Error{Code: berth.CodeConflict, RetryAfter: time.Second,
		Message: fmt.Sprintf("The data of end user %s is being deleted. Try again when it is.", id)}
}

// create creates the record of a user. Without names, which only a run that was resumed lacks, it returns
// store.ErrNotFound.
func (s *Service) create(ctx context.Context, p berth.ProjectID, of *berth.Subject) (*record, error) {
	if of.User == "" && of.Chat == "" {
		return nil, store.ErrNotFound
	}
	r := s.newRecord(of)
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode end user: %w", err)
	}
	err = s.Objects.CreateObjects(ctx, p, &store.Object{ObjectKey: key(r.ID), CreatedAt: r.CreatedAt, Body: body})
	if errors.Is(err, store.ErrExists) { // by a concurrent request
		return s.read(ctx, p, of.EndUser)
	}
	return r, err
}

func (s *Service) newRecord(of *berth.Subject) *record {
	r := &record{EndUser: berth.EndUser{ID: of.EndUser, Object: "end_user", CreatedAt: s.Clock.Now().Unix(),
		User: of.User}}
	if of.User == "" {
		r.Chat = of.Chat
	}
	return r
}

// revive makes a new user of the record of one whose deletion has ended.
func (s *Service) revive(ctx context.Context, p berth.ProjectID, of *berth.Subject) (*record, error) {
	if of.User == "" && of.Chat == "" {
		return nil, store.ErrNotFound
	}
	return s.change(ctx, p, of.EndUser, func(r *record) (time.Time, error) {
		if r.Deletion == nil { // a concurrent request has done it
			return time.Time{}, nil
		}
		if !r.Deletion.Recorded || r.Deletion.Closing {
			return time.Time{}, beingForgotten(of.EndUser)
		}
		*r = *s.newRecord(of)
		return time.Time{}, nil
	})
}

// Get returns a user of a project.
func (s *Service) Get(ctx context.Context, p berth.ProjectID, id berth.EndUserID) (*berth.EndUser, error) {
	r, err := s.read(ctx, p, id)
	if err == nil && r.gone() {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, clientError(err, id)
	}
	return &r.EndUser, nil
}

// List returns a page of the users of a project, and whether there are more. If user is not empty, it returns only the
// user with this name.
func (s *Service) List(ctx context.Context, p berth.ProjectID, user string, page store.Page) ([]*berth.EndUser, bool,
	error) {
	list := []*berth.EndUser{}
	if user != "" {
		u, err := s.Get(ctx, p, berth.NewEndUserID(p, user, ""))
		switch {
		case err == nil:
			list = append(list, u)
		case berth.ErrorCode(err) != berth.CodeNotFound:
			return nil, false, err
		}
		return list, false, nil
	}
	for most := page.Limit; ; {
		objects, more, err := s.Objects.ListObjects(ctx, p, store.KindEndUser, "", page)
		if err != nil {
			return nil, false, fmt.Errorf("list end users: %w", err)
		}
		for i, o := range objects {
			r, err := decode(o)
			if err != nil {
				return nil, false, err
			}
			if !r.gone() {
				list = append(list, &r.EndUser)
			}
			if len(list) == most {
				return list, more || i < len(objects)-1, nil
			}
			page.After = o.ID
		}
		if !more || len(objects) == 0 || page.Before != "" {
			return list, more, nil
		}
	}
}

// SetLimits replaces the limits of a user.
func (s *Service) SetLimits(ctx context.Context, p berth.ProjectID, id berth.EndUserID,
	limits berth.EndUserLimits) (*berth.EndUser, error) {
	r, err := s.change(ctx, p, id, func(r *record) (time.Time, error) {
		if r.Deletion != nil {
			return time.Time{}, store.ErrNotFound
		}
		r.Limits = limits
		return time.Time{}, nil
	})
	if err != nil {
		return nil, err
	}
	return &r.EndUser, nil
}

// Own records that an object that a caller has created belongs to its end user, if it has one. The object must be
// deleted if Own fails.
func (s *Service) Own(ctx context.Context, c berth.Caller, id string) error {
	if c.Subject == nil {
		return nil
	}
	err := s.Objects.CreateObjects(ctx, c.Project, store.EndUserLink(c.Subject.EndUser, id, s.Clock.Now().Unix()))
	if err != nil && !errors.Is(err, store.ErrExists) {
		return fmt.Errorf("record the end user of %s: %w", id, err)
	}
	return nil
}
