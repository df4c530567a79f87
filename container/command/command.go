// Package command runs shell commands and code in containers for clients that may leave before the end and return
// later.
//
// The guest records the output of a command under the command's id. So a command survives its client's connection and
// this process: who has its id and its container can wait for it again, as long as the container lives and the guest
// has not dropped the record for newer ones.
package command

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/rule"
)

// Containers connect to the containers of projects.
type Containers interface {
	Shell(caller berth.Caller, id berth.ContainerID) guest.Execer
	Guest(ctx context.Context, caller berth.Caller, id berth.ContainerID) (*guest.Client, func(), error)
	Attached(caller berth.Caller, id berth.ContainerID) // records that the caller uses the container
}

// Options are the parts and limits of a Service. Those without a default are required.
type Options struct {
	Containers Containers
	Output     int // bytes of each stream of a command that are stored; default 64 KiB
	Running    int // commands that run at a time in one container; default 32
}

// A Service runs commands. It is safe for concurrent use.
type Service struct {
	Options

	mu      sync.Mutex
	running map[place]map[string]*Command // by container and id
}

// A place is a container of a project.
type place struct {
	project   berth.ProjectID
	container berth.ContainerID
}

// New returns a service.
func New(opts Options) *Service {
	if opts.Output == 0 {
		opts.Output = 64 << 10
	}
	if opts.Running == 0 {
		opts.Running = 32
	}
	return &Service{Options: opts, running: map[place]map[string]*Command{}}
}

// A Request describes a command.
type Request struct {
	Text    string        // of a shell command, or code
	Kernel  string        // the Jupyter kernel of code; empty: a shell command
	Timeout time.Duration // after which the command is ended; 0: never
}

// Start starts a command in a container. The command continues when ctx ends.
func (s *Service) Start(ctx context.Context, caller berth.Caller, id berth.ContainerID, req Request) (*Command, error) {
	prefix := berth.PrefixCommand
	if req.Kernel != "" {
		prefix = berth.PrefixCodeCommand
	}
	c := newCommand(s.Output, berth.NewID(prefix), id, req.Kernel)
	c.exec = s.Containers.Shell(caller, id)
	if !s.add(place{caller.Project, id}, c) {
		return nil, berth.Errorf(berth.CodeRateLimited,
			"%d commands run in this container already. Wait for one, or stop one.", s.Running)
	}
	s.Containers.Attached(caller, id)
	call := guest.ShellCall{CallID: c.ID, Commands: []string{req.Text}, Timeout: req.Timeout, Kernel: req.Kernel,
		Keep: int64(s.Output), Accepted: func() { c.accept.Do(func() { close(c.accepted) }) }}
	go func() {
		defer s.remove(place{caller.Project, id}, c)
		c.follow(c.exec.Shell(context.WithoutCancel(ctx), call))
	}()
	c.awaitAccepted(ctx) // who gets its id can stop it, and find it after a crash
	return c, nil
}

var commandID = regexp.MustCompile(`^(` + berth.PrefixCommand + `|` + berth.PrefixCodeCommand + `)[A-Za-z0-9]{1,100}$`)

// Find returns a command of a container: one that runs, or one of which the container has the record. The caller must
// call release.
func (s *Service) Find(ctx context.Context, caller berth.Caller, container berth.ContainerID, id string) (c *Command,
	release func(), err error) {
	if !commandID.MatchString(id) {
		return nil, nil, berth.NotFound("Command", rule.Clip(id))
	}
	s.mu.Lock()
	c = s.running[place{caller.Project, container}][id]
	s.mu.Unlock()
	if c != nil {
		return c, func() {}, nil
	}
	client, leave, err := s.Containers.Guest(ctx, caller, container)
	if err != nil {
		return nil, nil, err
	}
	kernel := ""
	if strings.HasPrefix(id, berth.PrefixCodeCommand) {
		kernel = "python3" // the guest knows the kernel; here this says what the output is
	}
	c = newCommand(s.Output, id, container, kernel)
	close(c.accepted)
	c.exec = s.Containers.Shell(caller, container)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.follow(client.Shell(ctx, guest.ShellCall{CallID: id, Commands: []string{""}, Kernel: kernel, Known: true}))
	}()
	return c, func() {
		cancel()
		<-ended
		leave()
	}, nil
}

// List returns the ids of the commands that run in a container and that this process follows.
func (s *Service) List(p berth.ProjectID, id berth.ContainerID) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := []string{}
	for id := range s.running[place{p, id}] {
		ids = append(ids, id)
	}
	return ids
}

// add registers a command that runs. It reports false if too many run already.
func (s *Service) add(at place, c *Command) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.running[at]) >= s.Options.Running {
		return false
	}
	if s.running[at] == nil {
		s.running[at] = map[string]*Command{}
	}
	s.running[at][c.ID] = c
	return true
}

func (s *Service) remove(at place, c *Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running[at], c.ID)
	if len(s.running[at]) == 0 {
		delete(s.running, at)
	}
}

// explain returns the error of a command whose events ended too early, for the client.
func explain(id string, err error) error {
	if connect.CodeOf(err) == connect.CodeNotFound {
		return berth.NotFound("Command", id)
	}
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e
	}
	return &berth.Error{Code: berth.CodeUnavailable, Err: err,
		Message: "The container does not answer, so it is unknown whether the command completed. Wait for it again."}
}
