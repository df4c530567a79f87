package server

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/berth-run/berth/guest/guestpb/berth/guest/v1"
)

// A command is one command of a call.
type command struct {
	call    *call
	index   int
	script  string
	timeout time.Duration
	stdout  *spool
	stderr  *spool
	dump    string // where its shell writes its state
	left    string // what it wrote; of run, then of the call's merge
	began   string // where it writes its initial state, if that is unknown

	mu       sync.Mutex
	pid      int     // of its shell; 0 before it starts
	over     bool    // its shell has ended
	killed   bool    // by kill, or before it could start
	end      *v1.End // how it ended; reported once the call's state is settled
	reported bool
}

// mark is the value of the marker in the environment of the command's processes.
func (c *command) mark() string { return fmt.Sprintf("%s.%d", c.call.id, c.index) }

// result returns how the command ended, nil before.
func (c *command) result() *v1.End {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reported {
		return nil
	}
	return c.end
}

// finish allows the end to be reported: the next call finds the state of this one.
func (c *command) finish() {
	c.mu.Lock()
	c.reported = true
	c.mu.Unlock()
	c.call.ring()
}

// run runs the command to its shell's end.
func (s *shell) run(c *command, before string) {
	if c.index == 0 && s.state.forgotten() {
		fmt.Fprint(c.stderr, "berth: the working directory and the exported variables of the call before were lost: the container's disk was full\n")
	}
	end, err := s.exec(c, before)
	if err != nil {
		fmt.Fprintf(c.stderr, "berth: %v\n", err)
		end = &v1.End{ExitCode: 126}
	}
	s.state.take(c)
	c.stdout.close()
	c.stderr.close()
	if above := c.call.keepAbove; above > 0 && c.stdout.size()+c.stderr.size() > above {
		end.Stdout, end.Stderr = s.kept.keep(c.stdout), s.kept.keep(c.stderr)
	}
	c.mu.Lock()
	c.end = end
	c.mu.Unlock()
}

func (s *shell) exec(c *command, before string) (*v1.End, error) {
	if err := s.dumps(c, before); err != nil && !errors.Is(err, unix.ENOSPC) {
		return nil, err
	}
	cmd, pipes, err := s.prepare(c, before)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.killed {
		c.mu.Unlock()
		pipes.close()
		return &v1.End{ExitCode: 128 + int32(unix.SIGKILL)}, nil
	}
	err = s.server.reaper.start(cmd)
	if err == nil {
		c.pid = cmd.Process.Pid
	}
	c.mu.Unlock()
	pipes.started()
	if err != nil {
		pipes.close()
		return nil, err
	}
	timedOut := make(chan bool, 1)
	alarm := c.alarm(timedOut)
	_ = cmd.Wait() // its status is in ProcessState
	s.server.reaper.release(c.pid)
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	pipes.drain()
	if alarm != nil && !alarm.Stop() && <-timedOut {
		return &v1.End{Timeout: true}, nil
	}
	return &v1.End{ExitCode: exitCode(cmd.ProcessState)}, nil
}

// dumps makes the files into which a command's shell writes its state. Of commands
// side by side, the first of all calls tells what they begin with.
func (s *shell) dumps(c *command, before string) (err error) {
	if before == "" && len(c.call.commands) > 1 && c.index == 0 {
		if c.began, err = s.state.dump(c, ".began"); err != nil {
			return err
		}
	}
	c.dump, err = s.state.dump(c, "")
	return err
}

// alarm ends the command's tree when its time is up, and says whether that was
// what ended it.
func (c *command) alarm(timedOut chan<- bool) *time.Timer {
	if c.timeout <= 0 {
		return nil
	}
	return time.AfterFunc(c.timeout, func() {
		c.mu.Lock()
		over := c.over
		c.mu.Unlock()
		if !over {
			c.kill()
		}
		timedOut <- !over
	})
}

// prepare makes the process of a command's shell, in a session of its own.
func (s *shell) prepare(c *command, before string) (*exec.Cmd, *outputs, error) {
	path, bash := "/bin/bash", true
	if _, err := os.Stat(path); err != nil {
		path, bash = "/bin/sh", false
	}
	cmd := &exec.Cmd{Path: path, Args: []string{"bash", "-c", s.state.script(c, before, bash)}, Dir: s.server.opts.WorkDir,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if s.null != nil {
		cmd.Stdin = s.null
	}
	if before == "" {
		cmd.Env = s.server.environ(s.server.owner)
	} else {
		// Without SHELL, bash looks for the user's in the password file at its start.
		cmd.Env = []string{marker + "=" + c.mark(), "SHELL=" + loginShell}
	}
	s.server.become(cmd, s.server.owner)
	pipes, err := newOutputs(cmd, c.stdout, c.stderr)
	return cmd, pipes, err
}

// given is what of the environment came after the guest's start.
func (s *Server) given() []string {
	return slices.DeleteFunc(s.inherited(), func(kv string) bool { return s.initial[kv] })
}

// environ returns the environment of a user's command: that of the guest, overridden by
// that of a login, and by that of the container.
func (s *Server) environ(id identity) []string {
	env := append(s.inherited(), id.environ()...)
	if later := s.environment.Load(); later != nil {
		env = append(env, withoutOurs(*later)...)
	}
	if !slices.ContainsFunc(env, ofLocale) {
		env = append(env, "LC_CTYPE=C.UTF-8")
	}
	return env
}

// ofLocale reports whether a variable says what locale programs have. If none does,
// they are given one that speaks UTF-8. LANG would say the same, and have each shell
// and each Python look for thirty files at its start, in gVisor for a millisecond and
// more: of all categories, only the characters' differs from what is built in.
func ofLocale(kv string) bool {
	return strings.HasPrefix(kv, "LANG=") || strings.HasPrefix(kv, "LC_ALL=") || strings.HasPrefix(kv, "LC_CTYPE=")
}

// inherited is what commands are given besides a login's environment: what the
// sandbox was made with, without the guest's settings, and what came later.
func (s *Server) inherited() []string {
	all := os.Environ()
	if later := s.environment.Load(); later != nil {
		all = append(all, *later...)
	}
	return withoutOurs(all)
}

func withoutOurs(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, "BERTH_") })
}

// become makes cmd run as another user, if the guest may.
func (s *Server) become(cmd *exec.Cmd, id identity) {
	if os.Getuid() != 0 {
		return
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(id.uid), Gid: uint32(id.gid), Groups: id.groups}
}

func exitCode(st *os.ProcessState) int32 {
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int32(ws.Signal())
	}
	return int32(st.ExitCode())
}

// outputs carries a command's output from its pipes into its spools.
type outputs struct {
	streams [2]*output
	theirs  []*os.File
}

// An output is one pipe. After the command's shell has ended, what is left in it
// belongs to the command; what background processes write later is swallowed, so
// that they neither block nor die of it.
type output struct {
	pipe  *os.File
	spool *spool
	end   chan struct{} // closed when drained or at the end of file
}

func newOutputs(cmd *exec.Cmd, stdout, stderr *spool) (*outputs, error) {
	o := &outputs{}
	for i, sp := range []*spool{stdout, stderr} {
		r, w, err := outputPipe()
		if err != nil {
			o.close()
			return nil, err
		}
		o.streams[i] = &output{pipe: r, spool: sp, end: make(chan struct{})}
		o.theirs = append(o.theirs, w)
	}
	cmd.Stdout, cmd.Stderr = o.theirs[0], o.theirs[1]
	return o, nil
}

// started closes the command's ends and begins to read.
func (o *outputs) started() {
	for _, w := range o.theirs {
		w.Close()
	}
	for _, s := range o.streams {
		go s.pump()
	}
}

func (o *outputs) close() {
	for _, w := range o.theirs {
		w.Close()
	}
	for _, s := range o.streams {
		if s != nil {
			s.pipe.Close()
		}
	}
}

// drain returns when all that was written before the shell ended is spooled.
func (o *outputs) drain() {
	for _, s := range o.streams {
		_ = s.pipe.SetReadDeadline(time.Unix(1, 0)) // wakes the pump, which takes what is there
	}
	for _, s := range o.streams {
		<-s.end
	}
}

// pump reads until the shell has ended and the pipe is empty, then goes on for
// those who still hold its other end.
func (s *output) pump() {
	defer s.pipe.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := s.pipe.Read(buf)
		_, _ = s.spool.Write(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			close(s.end)
			return
		}
	}
	_ = s.pipe.SetReadDeadline(time.Time{})
	eof := s.takeRest(buf)
	close(s.end)
	for !eof {
		if _, err := s.pipe.Read(buf); err != nil {
			return
		}
	}
}

// takeRest spools what is in the pipe without waiting for more, up to the size of the
// spool: the output of a background process must not extend the command's output for
// ever. It reports the end of file.
func (s *output) takeRest(buf []byte) (eof bool) {
	raw, err := s.pipe.SyscallConn()
	if err != nil {
		return true
	}
	for taken := 0; taken < 1<<20; {
		var n int
		var readErr error
		if err := raw.Read(func(fd uintptr) bool {
			n, readErr = unix.Read(int(fd), buf)
			return true
		}); err != nil {
			return true
		}
		if n > 0 {
			_, _ = s.spool.Write(buf[:n])
			taken += n
			continue
		}
		if readErr == unix.EINTR {
			continue
		}
		return readErr == nil // it is empty, or has no writer any more
	}
	return false
}
