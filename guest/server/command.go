package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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
	dump    string        // where its shell writes its state
	left    string        // the written state; used by run, then by the call's merge
	began   string        // where it writes its initial state, if that is unknown
	stopped chan struct{} // closed when code of a kernel is to stop

	mu       sync.Mutex
	pid      int     // of its shell; 0 before it starts
	over     bool    // its shell has ended
	killed   bool    // kill was called, perhaps before it started
	end      *v1.End // how it ended; reported once the call's state is settled
	reported bool
}

// mark returns the value of the marker in the environment of the command's processes.
func (c *command) mark() string { return fmt.Sprintf("%s.%d", c.call.id, c.index) }

// result returns the command's end, or nil before it.
func (c *command) result() *v1.End {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reported {
		return nil
	}
	return c.end
}

// finish allows the end to be reported, because the next call will find the state of this
// one.
func (c *command) finish() {
	c.mu.Lock()
	c.reported = true
	c.mu.Unlock()
	c.call.ring()
}

// run runs the command until its shell ends.
func (s *shell) run(c *command, before string) {
	if c.index == 0 && s.state.forgotten() {
		fmt.Fprint(c.stderr,
			"berth: the working directory and the exported variables of the previous call were lost: the container's disk was full\n")
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

// dumps creates the files into which a command's shell writes its state. If the initial
// state is unknown and several commands run concurrently, the first one writes that as well.
func (s *shell) dumps(c *command, before string) (err error) {
	if before == "" && len(c.call.commands) > 1 && c.index == 0 {
		if c.began, err = s.state.dump(c, ".began"); err != nil {
			return err
		}
	}
	c.dump, err = s.state.dump(c, "")
	return err
}

// alarm ends the command's tree at its timeout, and reports whether the timeout ended it.
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

// prepare returns the process of a command's shell, in a session of its own.
func (s *shell) prepare(c *command, before string) (*exec.Cmd, *outputs, error) {
	path, bash := "/bin/bash", true
	if _, err := os.Stat(path); err != nil {
		path, bash = "/bin/sh", false
	}
	// BusyBox chooses what it does by the name that it is called by.
	cmd := &exec.Cmd{Path: path, Args: []string{filepath.Base(path), "-c", s.state.script(c, before, bash)},
		Dir:         s.server.opts.WorkDir,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if s.null != nil {
		cmd.Stdin = s.null
	}
	if before == "" {
		cmd.Env = s.server.environ(s.server.owner)
	} else {
		// Without SHELL, bash looks for the user's shell in the password file at its start.
		cmd.Env = []string{marker + "=" + c.mark(), "SHELL=" + loginShell}
	}
	s.server.become(cmd, s.server.owner)
	pipes, err := newOutputs(cmd, c.stdout, c.stderr)
	return cmd, pipes, err
}

// given returns the variables that were set after the guest's start.
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

// ofLocale reports whether a variable sets the locale. Without one, commands get
// LC_CTYPE=C.UTF-8. LANG would have the same effect, but makes each shell and each Python
// look for thirty files at its start, which takes a millisecond and more in gVisor; only
// the category of characters differs from the built-in locale.
func ofLocale(kv string) bool {
	return strings.HasPrefix(kv, "LANG=") || strings.HasPrefix(kv, "LC_ALL=") || strings.HasPrefix(kv, "LC_CTYPE=")
}

// inherited returns the variables of commands beyond a login's environment: those that the
// sandbox was created with, without the guest's settings, and those set later.
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

// become makes cmd run as another user, if the guest has the right.
func (s *Server) become(cmd *exec.Cmd, id identity) {
	if os.Getuid() != 0 {
		return
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(id.uid), Gid: uint32(id.gid), Groups: id.groups}
}

// mayEnter reports whether the mode of an existing directory, and of those above it, lets a user make it the working
// directory. It reports true for a path that is missing.
func mayEnter(dir string, id identity) bool {
	if id.uid == 0 {
		return true
	}
	dir, err := filepath.EvalSymlinks(dir)
	for ; err == nil; dir = filepath.Dir(dir) {
		st, serr := os.Stat(dir)
		if serr != nil {
			return true
		}
		sys, ok := st.Sys().(*syscall.Stat_t)
		if !ok {
			return true
		}
		search := fs.FileMode(0o001)
		switch {
		case int(sys.Uid) == id.uid:
			search = 0o100
		case int(sys.Gid) == id.gid || slices.Contains(id.groups, sys.Gid):
			search = 0o010
		}
		if st.Mode()&search == 0 {
			return false
		}
		if dir == "/" {
			return true
		}
	}
	return true
}

func exitCode(st *os.ProcessState) int32 {
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int32(ws.Signal())
	}
	return int32(st.ExitCode())
}

// outputs copies a command's output from its pipes into its spools.
type outputs struct {
	streams [2]*output
	theirs  []*os.File
}

// An output is one pipe. When the command's shell has ended, data still in the pipe belongs
// to the command. Later output of background processes is read and dropped, so that they
// neither block nor die of it.
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

// started closes the command's ends of the pipes and starts to read.
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

// drain waits until everything written before the shell's end is spooled.
func (o *outputs) drain() {
	for _, s := range o.streams {
		_ = s.pipe.SetReadDeadline(time.Unix(1, 0)) // wakes pump, which takes the rest
	}
	for _, s := range o.streams {
		<-s.end
	}
}

// pump spools the output until the shell has ended and the pipe is empty. Then it reads and
// drops the output of processes that still have the other end open.
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

// takeRest spools the data in the pipe without waiting for more, up to the size of the
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
		return readErr == nil // the pipe is empty, or has no writer
	}
	return false
}
