// Package bash keeps interactive shells in containers for clients that give them one command after another: variables,
// functions, background jobs and programs with a prompt of their own stay from one to the next.
package bash

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// Errors of sessions.
var (
	ErrExists  = errors.New("the session already exists")
	ErrNone    = errors.New("there is no such session")
	ErrEnded   = errors.New("the shell of the session has ended")
	ErrTimeout = errors.New("the command takes too long")
	ErrTooLong = errors.New("the line is too long for a terminal")
)

// A SyntaxError is the message of the shell about a command that it cannot parse.
type SyntaxError struct{ Message string }

func (e *SyntaxError) Error() string { return e.Message }

// A Handle is a started process.
type Handle interface {
	guest.Command
	// Release lets the container sleep and expire although the process runs.
	Release()
}

// Options are the parts and limits of a Service. Start is required.
type Options struct {
	// Start starts a process in a container.
	Start func(ctx context.Context, c berth.Caller, id berth.ContainerID, req guest.ProcessRequest) (Handle, error)

	Sessions int // of a container; default 32
	Output   int // bytes of the output of a command that are kept, the last ones; default 4 MiB
}

// A Service has the sessions of all containers on this server. It is safe for concurrent use.
type Service struct {
	Options

	mu  sync.Mutex
	all map[berth.ContainerID]map[string]*session // nil while one starts
}

// New returns a service without sessions.
func New(opts Options) *Service {
	if opts.Sessions == 0 {
		opts.Sessions = 32
	}
	if opts.Output == 0 {
		opts.Output = 4 << 20
	}
	return &Service{Options: opts, all: map[berth.ContainerID]map[string]*session{}}
}

// A Box is a container that a caller uses.
type Box struct {
	Caller    berth.Caller
	Container berth.ContainerID
	Guest     *guest.Client // the caller holds the container
}

// Create starts a session, and returns what the files that it sources print.
func (s *Service) Create(ctx context.Context, b Box, name string, sources []string) (string, error) {
	if err := s.reserve(b.Container, name); err != nil {
		return "", err
	}
	one, output, err := s.start(ctx, b, sources)
	s.mu.Lock()
	if err != nil {
		s.drop(b.Container, name)
	} else {
		s.all[b.Container][name] = one
	}
	s.mu.Unlock()
	if err == nil {
		go func() {
			<-one.done
			s.forget(b.Container, name, one)
		}()
	}
	return output, err
}

func (s *Service) reserve(id berth.ContainerID, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sessions := s.all[id]
	if _, ok := sessions[name]; ok {
		return ErrExists
	}
	if len(sessions) >= s.Sessions {
		return berth.Errorf(berth.CodeRateLimited, "The container has %d sessions. Close those that are not needed.",
			len(sessions))
	}
	if sessions == nil {
		sessions = map[string]*session{}
		s.all[id] = sessions
	}
	sessions[name] = nil
	return nil
}

// drop removes a session. The caller holds mu.
func (s *Service) drop(id berth.ContainerID, name string) {
	delete(s.all[id], name)
	if len(s.all[id]) == 0 {
		delete(s.all, id)
	}
}

func (s *Service) forget(id berth.ContainerID, name string, one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[id][name] == one {
		s.drop(id, name)
	}
}

func (s *Service) find(id berth.ContainerID, name string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.all[id][name]
	if one == nil {
		return nil, ErrNone
	}
	return one, nil
}

// Close ends a session, with all that runs in it.
func (s *Service) Close(ctx context.Context, id berth.ContainerID, name string) error {
	one, err := s.find(id, name)
	if err != nil {
		return err
	}
	s.forget(id, name, one)
	if err := one.handle.Kill(ctx); err != nil && !one.ended() {
		return fmt.Errorf("close session: %w", err)
	}
	return nil
}

// CloseAll ends the sessions of a container.
func (s *Service) CloseAll(ctx context.Context, id berth.ContainerID) error {
	s.mu.Lock()
	var names []string
	for name, one := range s.all[id] {
		if one != nil {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	var failed error
	for _, name := range names {
		if err := s.Close(ctx, id, name); err != nil && !errors.Is(err, ErrNone) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}
