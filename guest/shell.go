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

// A ShellCall is commands to run at the same time, each in its own shell. The
// guest runs a CallID once; asked again it replays what it printed.
type ShellCall struct {
	CallID   string        // [A-Za-z0-9_-]{1,128}, unique in the container
	Commands []string      // none: only take up a call that is known
	Timeout  time.Duration // of each command, in whole milliseconds; 0 is none
	Known    bool          // it was begun before: a guest that does not know it runs nothing
	Keep     int64         // bytes that a command prints until the guest lets files of it stay; 0 is never
}

// A ShellEventKind says what a ShellEvent tells.
type ShellEventKind int

const (
	ShellStdout  ShellEventKind = iota + 1 // Data
	ShellStderr                            // Data
	ShellExit                              // ExitCode; nothing follows about this command
	ShellTimeout                           // its time was up; nothing follows about this command
	ShellChanges                           // Files and MoreFiles, of all commands; the last event, unless there are too many files
)

// A ShellEvent is one thing that a command of a call did.
type ShellEvent struct {
	CommandIndex int
	Kind         ShellEventKind
	Data         []byte // belongs to the receiver
	Skipped      int64  // bytes of the same stream before Data that were dropped
	ExitCode     int    // 128 + n if signal n ended the command

	Stdout, Stderr KeptOutput // of a command that has ended

	Files     []FileChange // by path
	MoreFiles int64        // that changed and are not in Files
}

// A FileChange is what became of a regular file in the working directory while a
// call ran.
type FileChange struct {
	Path     string // in the working directory, clean
	Kind     FileChangeKind
	Bytes    int64 // as it is, or was
	Modified int64 // in Unix seconds; 0 of one that is deleted
}

// A FileChangeKind says what became of a file.
type FileChangeKind int

const (
	FileCreated FileChangeKind = iota + 1
	FileUpdated
	FileDeleted
)

// Bounds on what is taken of the guest's word on files.
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

// KeptOutput is a file of the sandbox with what a command printed.
type KeptOutput struct {
	Path  string // "" if there is none
	Bytes int64  // that it holds, of the stream's beginning
}

var keptPath = regexp.MustCompile(`^/[A-Za-z0-9_./-]{1,255}$`)

// kept validates a file name of the guest, because models see it.
func kept(k *v1.Kept) KeptOutput {
	if !keptPath.MatchString(k.GetPath()) || k.GetBytes() >= 1<<62 {
		return KeptOutput{}
	}
	return KeptOutput{k.GetPath(), int64(k.GetBytes())}
}

// reattach is how long a lost connection is tried again.
const reattach = 10 * time.Second

// Shell runs a call, or takes it up if the guest knows it, and yields what its
// commands do until all have ended. A lost connection is made again and the call
// taken up where it was. The sequence ends with an error if the guest cannot be
// reached any more or ctx ends; the commands go on in both cases.
func (c *Client) Shell(ctx context.Context, call ShellCall) iter.Seq2[ShellEvent, error] {
	return func(yield func(ShellEvent, error) bool) {
		s := &shellStream{client: c, call: call, seen: make([]*v1.Seen, len(call.Commands))}
		for i := range s.seen {
			s.seen[i] = &v1.Seen{}
		}
		var lost time.Time // when the connection was, unless something has come since
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

// connectionLost reports whether an RPC error may pass when it is tried again.
func connectionLost(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeUnknown, connect.CodeCanceled, connect.CodeInternal, connect.CodeDeadlineExceeded:
		return true
	}
	return false
}

// A shellStream is a call and how much of it has come.
type shellStream struct {
	client *Client
	call   ShellCall
	seen   []*v1.Seen
}

// follow yields until the call has ended (nil), the connection is lost (an
// error), or the consumer stops (more is false).
func (s *shellStream) follow(ctx context.Context, yield func(ShellEvent, error) bool) (more, progress bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	commands := s.call.Commands
	if s.call.Known {
		commands = nil
	}
	stream, err := s.client.shell.Run(ctx, connect.NewRequest(&v1.RunRequest{CallId: s.call.CallID,
		Commands: commands, TimeoutMs: s.call.Timeout.Milliseconds(), Seen: s.seen, KeepAbove: s.call.Keep}))
	if err != nil {
		return true, false, err
	}
	defer stream.Close()
	for stream.Receive() {
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
	return true, progress, stream.Err()
}

// event checks one message and counts it as seen.
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
		return ev, false, connect.NewError(connect.CodeDataLoss, fmt.Errorf("guest sent an event of command %d of %d", i, len(s.seen)))
	}
	seen := s.seen[i]
	if seen.Ended {
		return ev, false, connect.NewError(connect.CodeDataLoss, errors.New("guest sent an event of a command that had ended"))
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

// advance counts a piece of output and returns how much was left out before it.
func advance(seen *uint64, o *v1.Output) (skipped int64) {
	if at := o.GetOffset(); at > *seen && at-*seen < 1<<62 {
		skipped = int64(at - *seen)
		*seen = at
	}
	*seen += uint64(len(o.GetData()))
	return skipped
}

// CancelShell ends the commands of a call with all that they started. An unknown
// call is a CodeNotFound error.
func (c *Client) CancelShell(ctx context.Context, callID string) error {
	_, err := c.shell.Cancel(ctx, connect.NewRequest(&v1.CancelRequest{CallId: callID}))
	return err
}

// ForgetShell lets the guest drop the recorded output of a call that has ended.
func (c *Client) ForgetShell(ctx context.Context, callID string) error {
	_, err := c.shell.Forget(ctx, connect.NewRequest(&v1.ForgetRequest{CallId: callID}))
	return err
}
