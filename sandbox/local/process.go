package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/statefile"
	"github.com/berth-run/berth/sandbox"
)

// marker is the environment variable that identifies the processes of a sandbox. They inherit
// it from the guest, which removes only BERTH_*, and pass it on to the processes that they
// start.
const marker = "UNSAFE_LOCAL_SANDBOX"

// socket is the guest's socket below the sandbox's directory.
const socket = "run/guest.sock"

// startTimeout bounds Start if ctx has no deadline.
const startTimeout = 30 * time.Second

// hostEnv are the variables that a guest inherits from this process: none that may hold a
// secret.
var hostEnv = []string{"PATH", "HOME", "USER", "LANG", "TMPDIR"}

// Start starts the guest in its own session, so that it outlives this process, and returns when
// it listens.
func (d *Driver) Start(ctx context.Context, id string) error {
	s, err := d.find(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := d.start(ctx, s); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
		defer cancel()
		err = errors.Join(err, s.kill(ctx))
		log, _ := os.ReadFile(s.path("guest.log"))
		return fmt.Errorf("local: start %s: %w: %.1000s", id, err, bytes.TrimSpace(log))
	}
	return nil
}

func (d *Driver) start(ctx context.Context, s instance) error {
	var rec record
	if err := sandbox.ReadRecord(s.dir, &rec); err != nil {
		return err
	}
	if err := sandbox.MarkStarted(s.dir); err != nil {
		return err
	}
	log, err := os.OpenFile(s.path("guest.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()

	// The shell writes its process id, which becomes the guest's, before the guest runs: after
	// a crash of this process there is no unknown guest.
	cmd := exec.Command("/bin/sh", "-c",
		fmt.Sprintf(`{ echo %d >/proc/self/oom_score_adj; } 2>/dev/null; echo $$ >pid && exec "$0"`,
			sandbox.OOMScoreAdj), d.opts.GuestPath)
	cmd.Dir = s.dir
	cmd.Env = s.guestEnv(rec.Env)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait() // so that it does not stay a zombie; its log has the reason of its end
		close(exited)
	}()

	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := s.dial(ctx)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-exited:
			return errors.New("the guest ended before it listened")
		case <-ctx.Done():
			return fmt.Errorf("wait for the guest to listen: %w", errors.Join(context.Cause(ctx), err))
		case <-tick.C:
		}
	}
}

// guestEnv returns the guest's environment.
func (s instance) guestEnv(specEnv []string) []string {
	var env []string
	for _, name := range hostEnv {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	env = append(env, specEnv...)
	if u, err := user.Current(); err == nil { // commands run as this process's user
		env = append(env, "BERTH_USER="+u.Username)
	}
	return append(env,
		marker+"="+s.mark(),
		"BERTH_GUEST_SOCKET="+socket,
		"BERTH_WORKDIR="+s.path("work"),
		"BERTH_STATE_DIR="+s.path("state"))
}

// mark is the value of marker: the directory, which is unique to this sandbox.
func (s instance) mark() string { return s.dir }

// alive reports whether the guest is alive. An error means that it is unknown.
func (s instance) alive() (bool, error) {
	raw, err := statefile.ReadFile(s.path("pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return false, nil // it was killed while it wrote the file
	}
	return s.owns(pid)
}

// owns reports whether a process has the sandbox's mark. Dead processes do not, nor do those of
// other users, whose environment cannot be read.
func (s instance) owns(pid int) (bool, error) {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrPermission) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	want := []byte(marker + "=" + s.mark())
	for kv := range bytes.SplitSeq(environ, []byte{0}) {
		if bytes.Equal(kv, want) {
			return true, nil
		}
	}
	return false, nil
}

// kill kills every process that has the sandbox's mark or descends from one, until there is
// none. It does not find a process that has dropped the mark and lost its parent: this driver
// does not contain processes that try to escape.
func (s instance) kill(ctx context.Context) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		left, err := s.members()
		if err != nil || len(left) == 0 {
			return err
		}
		for _, pid := range left {
			unix.Kill(pid, unix.SIGKILL)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes do not end: %w", len(left), context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// members returns the living processes of the sandbox.
func (s instance) members() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := make(map[int][]int)
	var queue []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		ppid, alive, err := parseStat(pid)
		if err != nil {
			return nil, err
		}
		if !alive {
			continue
		}
		children[ppid] = append(children[ppid], pid)
		owns, err := s.owns(pid)
		if err != nil {
			return nil, err
		}
		if owns {
			queue = append(queue, pid)
		}
	}
	var members []int
	for seen := make(map[int]bool); len(queue) > 0; queue = queue[1:] {
		if pid := queue[0]; !seen[pid] {
			seen[pid] = true
			members = append(members, pid)
			queue = append(queue, children[pid]...)
		}
	}
	return members, nil
}

// parseStat parses proc_pid_stat(5). Zombies are not alive.
func parseStat(pid int) (ppid int, alive bool, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	// The line is "pid (comm) state ppid …". comm may contain any characters, even parentheses.
	i := bytes.LastIndexByte(raw, ')')
	var state byte
	if _, err := fmt.Sscanf(string(raw[i+1:]), " %c %d", &state, &ppid); err != nil {
		return 0, false, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return ppid, state != 'Z' && state != 'X', nil
}
