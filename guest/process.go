package guest

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"

	pb "github.com/berth-run/berth/guest/guestpb/process"
)

// A ProcessRequest describes a single process, as envd's process.Start does.
type ProcessRequest struct {
	User string // default: the guest's default user
	Cmd  string // a path, or a name looked up in PATH
	Args []string
	Env  map[string]string
	Dir  string // default: the working directory
	TTY  *Size  // the size of its terminal; nil: no terminal
	In   bool   // it reads input; see Process.Write
	Tag  string // by which KillTagged finds it; may be empty
}

// Size is the size of a terminal, in characters.
type Size struct{ Cols, Rows int }

// A Process is a process in the sandbox that Start has started.
type Process struct {
	PID    int
	client *Client
	tty    bool
	stream eventStream
}

// An eventStream is the answer to a request for the events of a process.
type eventStream interface {
	Receive() bool
	Event() *pb.ProcessEvent
	Err() error
	Close() error
}

type startStream struct {
	*connect.ServerStreamForClient[pb.StartResponse]
}

func (s startStream) Event() *pb.ProcessEvent { return s.Msg().GetEvent() }

type joinStream struct {
	*connect.ServerStreamForClient[pb.ConnectResponse]
}

func (s joinStream) Event() *pb.ProcessEvent { return s.Msg().GetEvent() }

// A ProcessEvent is output of a process, or its end.
type ProcessEvent struct {
	Stdout, Stderr []byte // of a process with a terminal, all is Stdout
	Ended          bool
	ExitCode       int    // -1 if a signal ended it
	Status         string // in words: "exit status 1", "signal: killed"
}

// Start starts a process. The caller reads Events to the end. If ctx is cancelled, the process
// continues without a reader. The guest kills the process at the deadline of ctx, also if ctx was
// cancelled before or this process has ended.
func (c *Client) Start(ctx context.Context, req ProcessRequest) (*Process, error) {
	config := &pb.ProcessConfig{Cmd: req.Cmd, Args: req.Args, Envs: req.Env}
	if req.Dir != "" {
		config.Cwd = &req.Dir
	}
	msg := &pb.StartRequest{Process: config, Stdin: &req.In}
	if req.TTY != nil {
		msg.Pty = &pb.PTY{Size: &pb.PTY_Size{Cols: uint32(req.TTY.Cols), Rows: uint32(req.TTY.Rows)}}
	}
	if req.Tag != "" {
		msg.Tag = &req.Tag
	}
	r := connect.NewRequest(msg)
	setUser(r.Header(), req.User)
	stream, err := c.process.Start(ctx, r)
	if err != nil {
		return nil, err
	}
	return c.started(startStream{stream}, req.TTY != nil)
}

// started returns the process of a stream whose first event is the start.
func (c *Client) started(stream eventStream, tty bool) (*Process, error) {
	if !stream.Receive() {
		err := stream.Err()
		stream.Close()
		if err == nil {
			err = errors.New("the guest did not start the process")
		}
		return nil, err
	}
	return &Process{PID: int(stream.Event().GetStart().GetPid()), client: c, tty: tty, stream: stream}, nil
}

// ReplayHeader is the header of a request to join a terminal that asks for its last output.
const ReplayHeader = "Berth-Replay"

// Join returns a running process with a terminal, started by any client. Its first event is
// the last output, at most 256 KB. It returns fs.ErrNotExist if there is no process with the PID.
// The process continues when the caller stops to read Events; a caller that does not read holds up
// the terminal.
func (c *Client) Join(ctx context.Context, pid int) (*Process, error) {
	r := connect.NewRequest(
		&pb.ConnectRequest{Process: &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: uint32(pid)}}})
	r.Header().Set(ReplayHeader, "1")
	stream, err := c.process.Connect(ctx, r)
	if err != nil {
		return nil, asFileError(err)
	}
	p, err := c.started(joinStream{stream}, true)
	return p, asFileError(err)
}

// TerminalTag starts the tags of processes that are terminals, which others may join.
const TerminalTag = "terminal"

// A Terminal is a running process that others may join.
type Terminal struct {
	PID     int
	Command []string
}

// Terminals lists the processes that were started with a TerminalTag, the oldest first.
func (c *Client) Terminals(ctx context.Context) ([]Terminal, error) {
	resp, err := c.process.List(ctx, connect.NewRequest(&pb.ListRequest{}))
	if err != nil {
		return nil, asFileError(err)
	}
	var found []Terminal
	for _, p := range resp.Msg.Processes {
		if strings.HasPrefix(p.GetTag(), TerminalTag) {
			found = append(found, Terminal{int(p.Pid), append([]string{p.GetConfig().GetCmd()},
				p.GetConfig().GetArgs()...)})
		}
	}
	slices.SortFunc(found, func(a, b Terminal) int { return cmp.Compare(a.PID, b.PID) })
	return found, nil
}

// KillTagged ends the process with a tag, with everything that it started. It returns nil if
// there is none.
func (c *Client) KillTagged(ctx context.Context, tag string) error {
	_, err := c.process.SendSignal(ctx, connect.NewRequest(&pb.SendSignalRequest{
		Process: &pb.ProcessSelector{Selector: &pb.ProcessSelector_Tag{Tag: tag}}, Signal: pb.Signal_SIGNAL_SIGKILL}))
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil
	}
	return err
}

// setUser sets the user that a request acts for, in envd's form.
func setUser(h http.Header, user string) {
	if user != "" && h.Get("Authorization") == "" {
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	}
}

// Leave ends the connection to the process, which continues.
func (p *Process) Leave() { p.stream.Close() }

// Events yields the output of the process; the last event has Ended set. After an error
// the rest of the output is lost.
func (p *Process) Events() iter.Seq2[ProcessEvent, error] {
	return func(yield func(ProcessEvent, error) bool) {
		defer p.stream.Close()
		for p.stream.Receive() {
			switch ev := p.stream.Event().GetEvent().(type) {
			case *pb.ProcessEvent_Data:
				out := ProcessEvent{Stdout: ev.Data.GetStdout(), Stderr: ev.Data.GetStderr()}
				if pty := ev.Data.GetPty(); pty != nil {
					out.Stdout = pty
				}
				if !yield(out, nil) {
					return
				}
			case *pb.ProcessEvent_End:
				// Read to the end, so that the connection can be reused, and the container
				// is no longer in use when the caller has the event.
				for p.stream.Receive() {
				}
				yield(ProcessEvent{Ended: true, ExitCode: int(ev.End.GetExitCode()), Status: ev.End.GetStatus()}, nil)
				return
			}
		}
		err := p.stream.Err()
		if err == nil {
			err = errors.New("the process's events ended without its exit")
		}
		yield(ProcessEvent{}, err)
	}
}

func (p *Process) selector() *pb.ProcessSelector {
	return &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: uint32(p.PID)}}
}

// Write gives the process input.
func (p *Process) Write(ctx context.Context, data []byte) error {
	in := &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: data}}
	if p.tty {
		in.Input = &pb.ProcessInput_Pty{Pty: data}
	}
	_, err := p.client.process.SendInput(ctx, connect.NewRequest(&pb.SendInputRequest{Process: p.selector(),
		Input: in}))
	return err
}

// CloseStdin ends the process's input. To a process with a terminal it sends ^D instead.
func (p *Process) CloseStdin(ctx context.Context) error {
	if p.tty {
		return p.Write(ctx, []byte{4})
	}
	_, err := p.client.process.CloseStdin(ctx, connect.NewRequest(&pb.CloseStdinRequest{Process: p.selector()}))
	return err
}

// Resize sets the size of the process's terminal.
func (p *Process) Resize(ctx context.Context, size Size) error {
	pty := &pb.PTY{Size: &pb.PTY_Size{Cols: uint32(size.Cols), Rows: uint32(size.Rows)}}
	_, err := p.client.process.Update(ctx, connect.NewRequest(&pb.UpdateRequest{Process: p.selector(), Pty: pty}))
	return err
}

// Terminate sends the process SIGTERM; Kill ends it with everything that it started.
func (p *Process) Terminate(ctx context.Context) error {
	return p.signal(ctx, pb.Signal_SIGNAL_SIGTERM)
}
func (p *Process) Kill(ctx context.Context) error { return p.signal(ctx, pb.Signal_SIGNAL_SIGKILL) }

func (p *Process) signal(ctx context.Context, s pb.Signal) error {
	_, err := p.client.process.SendSignal(ctx, connect.NewRequest(&pb.SendSignalRequest{Process: p.selector(),
		Signal: s}))
	return err
}
