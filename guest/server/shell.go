package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/berth-run/berth/guest/changes"
	v1 "github.com/berth-run/berth/guest/guestpb/berth/guest/v1"
)

// keptCalls is the number of ended calls whose output is recorded, so that they can be
// resumed.
const keptCalls = 64

// keepAlive is the interval of empty events on a silent stream.
const keepAlive = 15 * time.Second

var callID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// A shell runs shell calls. Each command has a bash of its own. The next call starts with
// the working directory and the exported environment of the previous one (state.go).
type shell struct {
	server *Server
	state  *shellState
	kept   keptOutput
	files  *changes.Tree
	null   *os.File // the input of commands; nil if it cannot be opened

	mu    sync.Mutex
	calls map[string]*call
	order []string // ids, oldest first
}

func newShell(s *Server) *shell {
	null, _ := os.Open(os.DevNull)
	return &shell{server: s, null: null, state: &shellState{dir: s.opts.StateDir, memory: memoryDir(), owner: s.owner,
		given: s.given},
		kept: keptOutput{dir: filepath.Join(s.opts.StateDir, "output")}, files: changes.New(s.opts.WorkDir,
			s.opts.Watch), calls: map[string]*call{}}
}

// A call is one shell call: its commands and their output.
type call struct {
	id        string
	commands  []*command
	kernel    string      // that runs the commands as code; empty: they are shell commands
	desktop   *v1.Desktop // that carries out the commands as actions; nil: they are none
	keepAbove int64       // bytes of output above which a command's files stay; 0: never

	mu      sync.Mutex
	wake    chan struct{} // closed and replaced when anything changes
	settled bool          // no more events follow
	changes *v1.Changes   // of files; nil if unknown
}

func (c *call) settle(changes *v1.Changes) {
	c.mu.Lock()
	c.settled, c.changes = true, changes
	c.mu.Unlock()
	c.ring()
}

// last returns the changes of files, the call's last event, once the call is settled.
func (c *call) last() (changes *v1.Changes, settled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes, c.settled
}

func (c *call) ring() {
	c.mu.Lock()
	close(c.wake)
	c.wake = make(chan struct{})
	c.mu.Unlock()
}

func (c *call) changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wake
}

func (c *call) ended() bool {
	for _, cmd := range c.commands {
		if cmd.result() == nil {
			return false
		}
	}
	return true
}

// Run implements berth.guest.v1.Shell.
func (s *shell) Run(ctx context.Context, req *connect.Request[v1.RunRequest],
	stream *connect.ServerStream[v1.RunResponse]) error {
	c, err := s.call(req.Msg)
	if err != nil {
		return err
	}
	return c.stream(ctx, req.Msg.Seen, stream)
}

// call returns the call with the request's id. It starts a new one.
func (s *shell) call(req *v1.RunRequest) (*call, error) {
	if !callID.MatchString(req.CallId) {
		return nil, connect.NewError(connect.CodeInvalidArgument,
			errors.New("call_id must be 1 to 128 letters, digits, _ or -"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.calls[req.CallId]; c != nil {
		return c, nil
	}
	if len(req.Commands) == 0 {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no call %s", req.CallId))
	}
	c := &call{id: req.CallId, kernel: req.Kernel, desktop: req.Desktop, keepAbove: req.KeepAbove,
		wake: make(chan struct{})}
	for i, script := range req.Commands {
		c.commands = append(c.commands, &command{
			call: c, index: i, script: script, timeout: time.Duration(req.TimeoutMs) * time.Millisecond,
			stopped: make(chan struct{}),
			stdout:  &spool{name: s.kept.name(c.id, i, "stdout"), ring: c.ring},
			stderr:  &spool{name: s.kept.name(c.id, i, "stderr"), ring: c.ring},
		})
	}
	s.calls[c.id] = c
	s.order = append(s.order, c.id)
	s.forgetOld()
	s.start(c)
	return c, nil
}

// forgetOld drops the oldest ended calls beyond keptCalls.
func (s *shell) forgetOld() {
	for i := 0; len(s.order) > keptCalls && i < len(s.order); {
		if c := s.calls[s.order[i]]; c.ended() {
			s.drop(s.order[i])
		} else {
			i++
		}
	}
}

func (s *shell) drop(id string) {
	c := s.calls[id]
	delete(s.calls, id)
	for i, o := range s.order {
		if o == id {
			s.order = append(s.order[:i], s.order[i+1:]...)
			break
		}
	}
	for _, cmd := range c.commands {
		cmd.stdout.discard(cmd.end.GetStdout() != nil)
		cmd.stderr.discard(cmd.end.GetStderr() != nil)
	}
}

// start runs the commands side by side. When all have ended, it saves their state for the
// next call.
func (s *shell) start(c *call) {
	before, scene := s.state.current(), s.files.Begin()
	if len(c.commands) == 1 && c.commands[0].script == restartScript {
		before = ""
	}
	var all sync.WaitGroup
	for _, cmd := range c.commands {
		all.Go(func() {
			switch {
			case c.desktop != nil:
				s.server.desktop.run(cmd)
			case c.kernel != "":
				s.server.kernels.run(cmd)
			default:
				s.run(cmd, before)
			}
		})
	}
	go func() {
		all.Wait()
		if c.kernel == "" && c.desktop == nil {
			s.state.merge(c, before)
		}
		for _, cmd := range c.commands {
			cmd.finish()
		}
		c.settle(s.files.End(scene))
	}()
}

// stream sends the call's events from the caller's position on.
func (c *call) stream(ctx context.Context, seen []*v1.Seen, stream *connect.ServerStream[v1.RunResponse]) error {
	readers := make([]*reader, len(c.commands))
	for i, cmd := range c.commands {
		readers[i] = &reader{cmd: cmd, buf: make([]byte, 32<<10)}
		if i < len(seen) {
			readers[i].offset = [2]int64{int64(seen[i].Stdout), int64(seen[i].Stderr)}
			readers[i].ended = seen[i].Ended
		}
	}
	silence := time.NewTicker(keepAlive)
	defer silence.Stop()
	// The first message says that the guest has the call.
	if err := stream.Send(
		&v1.RunResponse{Event: &v1.RunResponse_Keepalive{Keepalive: &v1.KeepAlive{}}}); err != nil {
		return err
	}
	for {
		wake := c.changed()
		sent, done := false, true
		for _, r := range readers {
			n, err := r.send(stream)
			if err != nil {
				return err
			}
			sent = sent || n
			done = done && r.ended
		}
		if changes, settled := c.last(); done && settled {
			if changes == nil {
				return nil
			}
			return stream.Send(&v1.RunResponse{Event: &v1.RunResponse_Changes{Changes: changes}})
		}
		if sent {
			continue
		}
		select {
		case <-wake:
		case <-silence.C:
			if err := stream.Send(
				&v1.RunResponse{Event: &v1.RunResponse_Keepalive{Keepalive: &v1.KeepAlive{}}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A reader is a position in the events of one command.
type reader struct {
	cmd    *command
	offset [2]int64
	ended  bool
	buf    []byte
}

// send sends the available events and reports whether there were any.
func (r *reader) send(stream *connect.ServerStream[v1.RunResponse]) (bool, error) {
	if r.ended {
		return false, nil
	}
	result := r.cmd.result() // before reading the spools: with a result, they are complete
	sent, drained := false, true
	for i, sp := range []*spool{r.cmd.stdout, r.cmd.stderr} {
		at, n, end := sp.read(r.offset[i], r.buf)
		drained = drained && end
		if n == 0 {
			continue
		}
		sent = true
		r.offset[i] = at + int64(n)
		out := &v1.Output{Offset: uint64(at), Data: r.buf[:n]}
		msg := &v1.RunResponse{CommandIndex: uint32(r.cmd.index), Event: &v1.RunResponse_Stdout{Stdout: out}}
		if i == 1 {
			msg.Event = &v1.RunResponse_Stderr{Stderr: out}
		}
		if err := stream.Send(msg); err != nil {
			return sent, err
		}
	}
	if sent || !drained || result == nil {
		return sent, nil
	}
	r.ended = true
	return true, stream.Send(&v1.RunResponse{CommandIndex: uint32(r.cmd.index),
		Event: &v1.RunResponse_End{End: result}})
}

// Cancel implements berth.guest.v1.Shell.
func (s *shell) Cancel(_ context.Context, req *connect.Request[v1.CancelRequest]) (*connect.Response[v1.CancelResponse],
	error) {
	s.mu.Lock()
	c := s.calls[req.Msg.CallId]
	s.mu.Unlock()
	if c == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no call %s", req.Msg.CallId))
	}
	for _, cmd := range c.commands {
		cmd.kill()
	}
	return connect.NewResponse(&v1.CancelResponse{}), nil
}

// Forget implements berth.guest.v1.Shell.
func (s *shell) Forget(_ context.Context, req *connect.Request[v1.ForgetRequest]) (*connect.Response[v1.ForgetResponse],
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.calls[req.Msg.CallId]; c != nil && c.ended() {
		s.drop(req.Msg.CallId)
	}
	return connect.NewResponse(&v1.ForgetResponse{}), nil
}
