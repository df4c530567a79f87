// Package process keeps processes in containers for clients that look at them now and then: background commands, whose
// output is read in entries, and terminals, which one client at a time is connected to.
//
// A process belongs to a container and to a session of a client, which alone finds it.
//
//	Start ─▶ running ─▶ done, or killed ─▶ forgotten, Options.Keep later
package process

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/clock"
)

// A Handle is a started process; *container.Process implements it.
type Handle interface {
	guest.Command
	Terminate(ctx context.Context) error
	Resize(ctx context.Context, size guest.Size) error
	// Release lets the container sleep and expire although the process runs.
	Release()
}

// Options are the parts and limits of a Service. Those without a default are required.
type Options struct {
	// Start starts a process in a container.
	Start func(ctx context.Context, c berth.Caller, id berth.ContainerID, req guest.ProcessRequest) (Handle, error)

	Log   *slog.Logger
	Clock clock.Clock // default clock.System

	Keep     time.Duration // of a process that has ended; default 5 minutes
	Interest time.Duration // without a question about a process, after which its container may sleep; default 1 hour
	Output   int           // bytes of output of a process that are kept; default 1 MiB
	Commands int           // of a container, with those that have ended; default 256
	Running  int           // commands of a container that run; default 64
	Shells   int           // terminals of a container; default 16
}

// A Service has the processes of all containers on this server. It is safe for concurrent use.
type Service struct {
	Options

	mu   sync.Mutex
	all  map[berth.ContainerID][]*Process // in the order of their starts
	byID map[string]*Process
	dirs directories
}

// New returns a service without processes.
func New(opts Options) *Service {
	if opts.Clock == nil {
		opts.Clock = clock.System
	}
	if opts.Keep == 0 {
		opts.Keep = 5 * time.Minute
	}
	if opts.Interest == 0 {
		opts.Interest = time.Hour
	}
	if opts.Output == 0 {
		opts.Output = 1 << 20
	}
	if opts.Commands == 0 {
		opts.Commands = 256
	}
	if opts.Running == 0 {
		opts.Running = 64
	}
	if opts.Shells == 0 {
		opts.Shells = 16
	}
	return &Service{Options: opts, all: map[berth.ContainerID][]*Process{}, byID: map[string]*Process{},
		dirs: directories{clock: opts.Clock, all: map[directoryKey]directory{}}}
}

// An Owner is who may use a process: a session of a client, in a container of a project.
type Owner struct {
	Project   berth.ProjectID
	Container berth.ContainerID
	User      string
	Session   string
}

// A Spec describes a process.
type Spec struct {
	Command string // that clients see
	Request guest.ProcessRequest
	Shell   bool   // it is a terminal, which List leaves out
	Mark    string // at the end of its id
}

// Start starts a process for its owner.
func (s *Service) Start(ctx context.Context, c berth.Caller, owner Owner, spec Spec) (*Process, error) {
	p := &Process{ID: s.newID(spec), Owner: owner, Command: spec.Command, Shell: spec.Shell, service: s,
		CreatedAt: s.Clock.Now(), status: Running, done: make(chan struct{})}
	if err := s.add(p); err != nil {
		return nil, err
	}
	spec.Request.In = true
	// The process outlives the request.
	handle, err := s.Options.Start(context.WithoutCancel(ctx), c, owner.Container, spec.Request)
	if err != nil {
		s.forget(p)
		return nil, fmt.Errorf("start process: %w", err)
	}
	s.mu.Lock() // others can find it from now on
	p.handle, p.interest = handle, s.Clock.AfterFunc(s.Interest, handle.Release)
	s.mu.Unlock()
	go p.follow()
	return p, nil
}

func (s *Service) newID(spec Spec) string {
	var word [6]byte
	_, _ = rand.Read(word[:]) // never fails
	if spec.Shell {
		return hex.EncodeToString(word[:]) + spec.Mark
	}
	return s.Clock.Now().UTC().Format("20060102-150405-") + hex.EncodeToString(word[:]) + spec.Mark
}

// add admits a process to the ones of its container.
func (s *Service) add(p *Process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	running, commands, shells := 0, 0, 0
	var ended *Process // the oldest command that has ended
	for _, other := range s.all[p.Owner.Container] {
		switch {
		case other.Shell:
			shells++
		case other.Status() == Running:
			running++
			commands++
		default:
			commands++
			if ended == nil {
				ended = other
			}
		}
	}
	switch {
	case p.Shell && shells >= s.Shells:
		return &berth.Error{Code: berth.CodeRateLimited, Wire: "too_many_terminals",
			Message: fmt.Sprintf("Maximum number of terminal sessions (%d) reached", s.Shells)}
	case !p.Shell && running >= s.Running:
		return berth.Errorf(berth.CodeRateLimited, "%d commands already run in this container. End those that are not needed.",
			running)
	case !p.Shell && commands >= s.Commands && ended != nil:
		s.drop(ended)
	}
	s.all[p.Owner.Container] = append(s.all[p.Owner.Container], p)
	s.byID[p.ID] = p
	return nil
}

func (s *Service) forget(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(p)
}

// drop forgets a process. The caller holds mu.
func (s *Service) drop(p *Process) {
	delete(s.byID, p.ID)
	id := p.Owner.Container
	if s.all[id] = slices.DeleteFunc(s.all[id], func(o *Process) bool { return o == p }); len(s.all[id]) == 0 {
		delete(s.all, id)
	}
}

// Find returns a process of an owner.
func (s *Service) Find(owner Owner, id string, shell bool) (*Process, bool) {
	p, ok := s.Lookup(id)
	if !ok || p.Shell != shell || p.Owner != owner {
		return nil, false
	}
	p.touch()
	return p, true
}

// Lookup returns a process whose owner the caller checks.
func (s *Service) Lookup(id string) (*Process, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.byID[id]
	return p, ok && p.handle != nil
}

// List returns the commands, or the running terminals, of an owner.
func (s *Service) List(owner Owner, shells bool) (found []*Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all[owner.Container] {
		if p.Owner == owner && p.Shell == shells && p.handle != nil {
			found = append(found, p)
		}
	}
	return found
}
