// Package session binds containers to sessions of clients.
//
// A session gets its container at the first use. A container without a name is the session's own and ends with it. A
// named container is shared by all sessions of the project that name it, and stays when they end.
//
//	Open ─▶ Use … release (many) ─▶ End, by the client or after Options.Idle without a use
package session

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// Containers are the containers of projects; *container.Service implements it.
type Containers interface {
	Create(ctx context.Context, caller berth.Caller, req container.CreateRequest) (*berth.Container, error)
	Get(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error)
	List(ctx context.Context, p berth.ProjectID, name string, page store.Page) ([]*berth.Container, bool, error)
	Delete(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error
}

// Options are the parts and limits of a Service. Those without a default are required.
type Options struct {
	Containers Containers
	Log        *slog.Logger
	Clock      clock.Clock   // default clock.System
	Idle       time.Duration // after which a session without a use ends; default 30 minutes
	PerProject int           // sessions of a project at a time; default 200
	Total      int           // sessions at a time; default 2,000
	Snapshots  bool          // a named container that expires leaves a snapshot, from which the next one starts
}

// A Service has the sessions of all projects on this server. It is safe for concurrent use.
type Service struct {
	Options

	mu       sync.Mutex
	sessions map[string]*Session
	projects map[berth.ProjectID]int
	ending   sync.WaitGroup
}

// New returns a service without sessions.
func New(opts Options) *Service {
	if opts.Clock == nil {
		opts.Clock = clock.System
	}
	if opts.Idle == 0 {
		opts.Idle = 30 * time.Minute
	}
	if opts.PerProject == 0 {
		opts.PerProject = 200
	}
	if opts.Total == 0 {
		opts.Total = 2000
	}
	return &Service{Options: opts, sessions: map[string]*Session{}, projects: map[berth.ProjectID]int{}}
}

// A Session is a client's session.
type Session struct {
	ID      string
	Project berth.ProjectID
	Spec    Spec

	service *Service
	onEnd   func()       // guarded by Service.mu
	uses    int          // guarded by Service.mu
	ended   bool         // guarded by Service.mu
	idle    *clock.Timer // nil while in use

	made      chan struct{} // holds a token unless the container is being looked up
	container berth.ContainerID
	own       []berth.ContainerID // containers that end with the session
}

// Open opens a session, which is in use until release.
func (s *Service) Open(p berth.ProjectID, spec Spec) (sess *Session, release func(), err error) {
	sess = &Session{ID: rand.Text(), Project: p, Spec: spec, service: s, uses: 1,
		made: make(chan struct{}, 1)}
	sess.made <- struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.projects[p] >= s.PerProject || len(s.sessions) >= s.Total {
		return nil, nil, &berth.Error{Code: berth.CodeRateLimited, RetryAfter: time.Minute,
			Message: "There are too many sessions. End those that are not needed any more, or wait until idle ones end."}
	}
	s.sessions[sess.ID] = sess
	s.projects[p]++
	return sess, func() { s.release(sess) }, nil
}

// OnEnd sets the function that is called when the session ends. It must not block.
func (sess *Session) OnEnd(f func()) {
	sess.service.mu.Lock()
	defer sess.service.mu.Unlock()
	sess.onEnd = f
}

// Use returns a session of a project. It does not end by itself until release.
func (s *Service) Use(p berth.ProjectID, id string) (sess *Session, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess = s.sessions[id]
	if sess == nil || sess.Project != p {
		return nil, nil, berth.NotFound("Session", rule.Clip(id))
	}
	if sess.idle != nil {
		sess.idle.Stop()
		sess.idle = nil
	}
	sess.uses++
	return sess, func() { s.release(sess) }, nil
}

func (s *Service) release(sess *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sess.uses--; sess.uses > 0 || sess.ended {
		return
	}
	sess.idle = s.Clock.AfterFunc(s.Idle, func() {
		s.mu.Lock()
		used := sess.uses > 0
		s.mu.Unlock()
		if !used {
			s.End(sess)
		}
	})
}

// End ends a session, and in the background its own containers. It does nothing for one that has ended.
func (s *Service) End(sess *Session) {
	s.mu.Lock()
	if sess.ended {
		s.mu.Unlock()
		return
	}
	sess.ended = true
	if sess.idle != nil {
		sess.idle.Stop()
	}
	delete(s.sessions, sess.ID)
	if s.projects[sess.Project]--; s.projects[sess.Project] == 0 {
		delete(s.projects, sess.Project)
	}
	s.ending.Add(1)
	onEnd := sess.onEnd
	s.mu.Unlock()
	if onEnd != nil {
		onEnd()
	}
	go func() {
		defer s.ending.Done()
		<-sess.made // nobody makes another one afterwards
		defer func() { sess.made <- struct{}{} }()
		for _, id := range sess.own {
			err := s.Containers.Delete(context.Background(), sess.Project, id)
			if err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
				s.Log.Error("failed to delete the container of a session; it expires when it is idle", "container", id,
					"err", err)
			}
		}
	}()
}

// Close waits until the containers of ended sessions are deleted. Sessions that have not ended leave their containers,
// which expire when they are idle.
func (s *Service) Close() { s.ending.Wait() }

// Len returns the number of sessions of a project.
func (s *Service) Len(p berth.ProjectID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.projects[p]
}

// errEnded is the error of a session that ended while its container was wanted.
var errEnded = berth.Errorf(berth.CodeNotFound, "The session has ended.")

// Current returns the container of the session, or "" before its first use.
func (sess *Session) Current() berth.ContainerID {
	sess.service.mu.Lock()
	defer sess.service.mu.Unlock()
	return sess.container
}

// Container returns the running container of the session. It creates one if there is none, or if it has ended.
func (sess *Session) Container(ctx context.Context, caller berth.Caller) (berth.ContainerID, error) {
	select {
	case <-sess.made:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { sess.made <- struct{}{} }()
	s := sess.service
	s.mu.Lock()
	ended, id := sess.ended, sess.container
	s.mu.Unlock()
	if ended {
		return "", errEnded
	}
	if id != "" {
		if c, err := s.Containers.Get(ctx, sess.Project, id); err == nil && c.Status == berth.ContainerRunning {
			return id, nil
		} else if err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
			return "", err
		}
	}
	id, err := s.Find(ctx, caller, sess.Spec)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	sess.container = id
	if sess.Spec.Name == "" {
		sess.own = append(sess.own, id)
	}
	s.mu.Unlock()
	return id, nil
}
