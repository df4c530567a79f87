package guest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"path"
	"regexp"
	"strings"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/berth-run/berth/guest/guestpb/berth/guest/v1"
)

// A ShellCall is a set of commands that run at the same time, each in its own shell. The
// guest runs a CallID once; for a repeated one it replays the output.
type ShellCall struct {
	CallID   string        // [A-Za-z0-9_-]{1,128}, unique in the container
	Commands []string      // empty: only resume a known call
	Timeout  time.Duration // of each command, in whole milliseconds; 0: no limit
	Known    bool          // the call was started before: a guest that does not know it runs nothing
	// the commands are code for this Jupyter kernel, and stdout is jupyter.Events as lines of JSON; empty: shell
	// commands
	Kernel string
	// the commands are JSON of lists of desktop.Action, stdout is the screenshot, and stderr the reason of a failure;
	// nil: they are none
	Desktop *Desktop
	Keep    int64 // bytes of output above which the guest stores a command's output in files; 0: never

	// Accepted is called when the guest knows the call, which it then runs to its end: the call can be cancelled, and
	// found by its id after a crash of the server. It may be called again after a lost connection. May be nil.
	Accepted func()
}

// A Desktop is the size of a sandbox's desktop in pixels. Zero means that of one that runs, or the
// default.
type Desktop struct{ Width, Height int }

// message returns the desktop in a request.
func (d *Desktop) message() *v1.Desktop {
	if d == nil {
		return nil
	}
	return &v1.Desktop{Width: uint32(d.Width), Height: uint32(d.Height)}
}

// A ShellEventKind is the kind of a ShellEvent; it selects the fields that are set.
type ShellEventKind int

const (
	ShellStdout  ShellEventKind = iota + 1 // Data
	ShellStderr                            // Data
	ShellExit                              // ExitCode; the command's last event
	ShellTimeout                           // the command was ended at its timeout; its last event
	// Files and MoreFiles, of all commands; the call's last event; missing if there are too many files
	ShellChanges
)

// A ShellEvent is output of a command of a call, its end, or the call's file changes.
type ShellEvent struct {
	CommandIndex int
	Kind         ShellEventKind
	Data         []byte // belongs to the receiver
	Skipped      int64  // dropped bytes of the same stream before Data
	ExitCode     int    // 128 + n if signal n ended the command

	Stdout, Stderr OutputFile // of a command that has ended

	Files     []FileChange // by path
	MoreFiles int64        // number of changed files that are not in Files
}

// A FileChange is a change of a regular file in the working directory during a call.
type FileChange struct {
	Path     string // in the working directory, clean
	Kind     FileChangeKind
	Bytes    int64 // size; of a deleted file, its last one
	Modified int64 // in Unix seconds; 0 for a deleted file
}

// A FileChangeKind is the kind of a FileChange.
type FileChangeKind int

const (
	FileCreated FileChangeKind = iota + 1
	FileUpdated
	FileDeleted
)

// Bounds on the file changes that are accepted from a guest.
const (
	maxFiles = 1000
	maxPath  = 4096 // bytes
)

func fileChanges(c *v1.Changes) (files []FileChange, more int64) {
	for _, f := range c.GetFiles()[:min(len(c.GetFiles()), maxFiles)] {
		kind := FileChangeKind(f.GetKind())
		name := strings.TrimPrefix(path.Clean("/"+f.GetPath()), "/")
		if kind < FileCreated || kind > FileDeleted || name == "" || len(name) > maxPath {
			continue
		}
		files = append(files, FileChange{name, kind, int64(min(f.GetBytes(), math.MaxInt64)), f.GetModified()})
	}
	return files, int64(min(c.GetMore(), math.MaxInt32))
}

// An OutputFile is a file in the sandbox with a command's output.
type OutputFile struct {
	Path  string // "" if there is none
	Bytes int64  // of the stream's start that the file holds
}

var keptPath = regexp.MustCompile(`^/[A-Za-z0-9_./-]{1,255}$`)

// kept validates the file name, because models see it.
func kept(k *v1.Kept) OutputFile {
	if !keptPath.MatchString(k.GetPath()) || k.GetBytes() >= 1<<62 {
		return OutputFile{}
	}
	return OutputFile{k.GetPath(), int64(k.GetBytes())}
}

// reattach is the time for which Shell retries a lost connection.
const reattach = 10 * time.Second

// Shell runs a call, or resumes it if the guest knows it, and yields its events until all
// commands have ended. After a lost connection it reconnects and continues at the same
// event. The sequence ends with an error if the guest becomes unreachable or ctx ends; the
// commands go on in both cases.
func (c *Client) Shell(ctx context.Context, call ShellCall) iter.Seq2[ShellEvent, error] {
	return func(yield func(ShellEvent, error) bool) {
		s := &shellStream{client: c, call: call, seen: make([]*v1.Seen, len(call.Commands))}
		for i := range s.seen {
			s.seen[i] = &v1.Seen{}
		}
		var lost time.Time // time of the loss of the connection; zero after an event
		for {
			more, progress, err := s.follow(ctx, yield)
			if !more || err == nil {
				return
			}
			if ctx.Err() != nil {
				yield(ShellEvent{}, context.Cause(ctx))
				return
			}
			if progress || lost.IsZero() {
				lost = time.Now()
			}
			if !connectionLost(err) || time.Since(lost) > reattach {
				yield(ShellEvent{}, err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

// connectionLost reports whether a retry may succeed after an RPC error.
func connectionLost(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeUnknown, connect.CodeCanceled, connect.CodeInternal,
		connect.CodeDeadlineExceeded:
		return true
	}
	return false
}

// A shellStream is a call and the position in its events.
type shellStream struct {
	client *Client
	call   ShellCall
	seen   []*v1.Seen
}

// follow yields events until the call has ended (nil), the connection is lost (an
// error), or the consumer stops (more is false).
func (s *shellStream) follow(ctx context.Context, yield func(ShellEvent, error) bool) (more, progress bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	commands := s.call.Commands
	if s.call.Known {
		commands = nil
	}
	stream, err := s.client.shell.Run(ctx, connect.NewRequest(&v1.RunRequest{CallId: s.call.CallID,
		Commands: commands, TimeoutMs: s.call.Timeout.Milliseconds(), Seen: s.seen, KeepAbove: s.call.Keep,
		Kernel: s.call.Kernel, Desktop: s.call.Desktop.message()}))
	if err != nil {
		return true, false, err
	}
	defer stream.Close()
	for accepted := false; stream.Receive(); {
		if !accepted && s.call.Accepted != nil {
			s.call.Accepted()
		}
		accepted = true
		ev, ok, err := s.event(stream.Msg())
		if err != nil {
			return true, progress, err
		}
		if !ok {
			continue
		}
		progress = true
		if !yield(ev, nil) {
			return false, progress, nil
		}
	}
	if err := stream.Err(); err != nil {
		return true, progress, fmt.Errorf("read events: %w", err)
	}
	return true, progress, nil
}

// event validates one message and advances the position.
func (s *shellStream) event(m *v1.RunResponse) (ShellEvent, bool, error) {
	i := int(m.CommandIndex)
	ev := ShellEvent{CommandIndex: i}
	if _, ok := m.Event.(*v1.RunResponse_Keepalive); ok || m.Event == nil {
		return ev, false, nil
	}
	if c, ok := m.Event.(*v1.RunResponse_Changes); ok {
		ev.Kind = ShellChanges
		ev.Files, ev.MoreFiles = fileChanges(c.Changes)
		return ev, true, nil
	}
	if i >= len(s.seen) {
		return ev, false, connect.NewError(connect.CodeDataLoss, fmt.Errorf("guest sent an event of command %d of %d",
			i, len(s.seen)))
	}
	seen := s.seen[i]
	if seen.Ended {
		return ev, false, connect.NewError(connect.CodeDataLoss,
			errors.New("guest sent an event of a command that had ended"))
	}
	switch e := m.Event.(type) {
	case *v1.RunResponse_Stdout:
		ev.Kind, ev.Data = ShellStdout, e.Stdout.GetData()
		ev.Skipped = advance(&seen.Stdout, e.Stdout)
	case *v1.RunResponse_Stderr:
		ev.Kind, ev.Data = ShellStderr, e.Stderr.GetData()
		ev.Skipped = advance(&seen.Stderr, e.Stderr)
	case *v1.RunResponse_End:
		seen.Ended = true
		ev.Kind, ev.ExitCode = ShellExit, int(e.End.GetExitCode())
		ev.Stdout, ev.Stderr = kept(e.End.GetStdout()), kept(e.End.GetStderr())
		if e.End.GetTimeout() {
			ev.Kind = ShellTimeout
		}
	}
	return ev, true, nil
}

// advance moves the position past a piece of output and returns the number of bytes that
// were dropped before it.
func advance(seen *uint64, o *v1.Output) (skipped int64) {
	if at := o.GetOffset(); at > *seen && at-*seen < 1<<62 {
		skipped = int64(at - *seen)
		*seen = at
	}
	*seen += uint64(len(o.GetData()))
	return skipped
}

// CancelShell ends the commands of a call with everything that they started. It returns a
// CodeNotFound error for an unknown call.
func (c *Client) CancelShell(ctx context.Context, callID string) error {
	_, err := c.shell.Cancel(ctx, connect.NewRequest(&v1.CancelRequest{CallId: callID}))
	return err
}

// ForgetShell makes the guest drop the recorded output of an ended call.
func (c *Client) ForgetShell(ctx context.Context, callID string) error {
	_, err := c.shell.Forget(ctx, connect.NewRequest(&v1.ForgetRequest{CallId: callID}))
	return err
}
