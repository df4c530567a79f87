package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// A warden is the wall of a driver without root: namespaces that the user owns, and in them a
// process that enforces the limits and ends with all the others. The process is berth-runsc;
// its package warden documents the files in the sandbox's directory.
type warden struct {
	id        string
	processes *host.Processes

	dir   string
	runsc *os.File
}

func (w *warden) path(elem string) string { return w.dir + "/" + elem }

func (w *warden) raise(sandbox.Limits) error   { return nil }
func (w *warden) Remove(context.Context) error { return nil }

// userNamespaces makes a process the first in its own namespaces, in which this process's user
// is root and no other user is mapped.
func userNamespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Setsid: true,
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
			unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
}

// start starts the warden, which starts runsc and reports when it has.
func (w *warden) start(ctx context.Context, args []string, rec record, sleeps bool) error {
	r, tells, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/fd/4", append([]string{"warden",
		"--memory=" + strconv.FormatInt(rec.Limits.Memory, 10), "--pids=" + strconv.Itoa(hostPIDs(rec.Limits)),
		"--wake=" + strconv.FormatBool(sleeps), "--"}, args...)...)
	cmd.Args[0] = "berth-warden"
	cmd.Dir = w.dir
	cmd.Env = []string{}
	cmd.ExtraFiles = []*os.File{tells, w.runsc} // in its namespace it cannot inspect this process
	cmd.SysProcAttr = userNamespaces()
	err = cmd.Start()
	tells.Close()
	if err != nil {
		return noNamespaces(err)
	}
	dead := make(chan struct{})
	go func() {
		cmd.Wait()
		close(dead)
	}()
	stop := context.AfterFunc(ctx, func() { r.SetReadDeadline(time.Now()) })
	defer stop()
	answer, err := io.ReadAll(io.LimitReader(r, 2*wordsLimit))
	switch {
	case ctx.Err() != nil:
		cmd.Process.Kill() // it may not hold its lock yet
		<-dead
		return fmt.Errorf("runsc: %w", context.Cause(ctx))
	case err != nil:
		return err
	case string(answer) != "started":
		return errors.New(printable(strings.TrimSpace(string(answer))))
	}
	return nil
}

// find returns the warden's process id, if it is alive.
func (w *warden) find() (pid int, alive bool, err error) { return w.processes.Find(w.id, w.search) }

// search finds the warden by the lock that it holds while it is alive.
func (w *warden) search() (pid int, alive bool, err error) {
	f, err := os.OpenFile(w.path("warden.lock"), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return 0, false, &os.PathError{Op: "query lock", Path: f.Name(), Err: err}
	}
	if lock.Type == unix.F_UNLCK {
		return 0, false, nil
	}
	if lock.Pid <= 0 {
		return 0, false, fmt.Errorf("%s is locked by a process of another namespace", f.Name())
	}
	return int(lock.Pid), true, nil
}

func (w *warden) Alive() (bool, error) {
	_, alive, err := w.find()
	return alive, err
}

func (w *warden) OOM() (bool, error) {
	reply, err := w.end()
	return reply.OOM, err
}

// run returns run/ in the warden's mount namespace.
func (w *warden) run() string {
	pid, alive, err := w.find()
	if err != nil || !alive {
		return w.path("run") // an empty directory
	}
	return fmt.Sprintf("/proc/%d/root%s", pid, w.path("run"))
}

func (w *warden) Kill(ctx context.Context) error {
	pid, alive, err := w.find()
	if err != nil || !alive {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("pidfdopen", err)
	}
	defer unix.Close(fd)
	if again, alive, err := w.search(); err != nil || !alive || again != pid {
		return err // the number is reused by another process
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("pidfdsendsignal", err)
	}
	for { // until it is dead; it dies last
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20)
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return os.NewSyscallError("poll", err)
		case ctx.Err() != nil:
			return fmt.Errorf("process %d does not end: %w", pid, context.Cause(ctx))
		}
	}
}

// A wardenReply has the required parts of the warden's Reply and End.
type wardenReply struct {
	CPU    time.Duration `json:"cpu"`
	Memory int64         `json:"memory"`
	Peak   int64         `json:"peak"`
	PIDs   int           `json:"pids"`
	Disk   int64         `json:"disk"`

	Failed bool   `json:"failed"`
	Output string `json:"output"`

	OOM   bool   `json:"oom"`
	Words string `json:"words"`
}

// maxReply bounds a reply in bytes.
const maxReply = 64 << 10

// request makes the warden run runsc. Without arguments it requests the sandbox's resource use.
func (w *warden) request(ctx context.Context, args ...string) (reply wardenReply, err error) {
	dir, err := os.Open(w.dir) // because the path of a socket must be short
	if err != nil {
		return reply, err
	}
	defer dir.Close()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/warden.sock", dir.Fd()))
	if err != nil {
		return reply, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })()
	if err := json.NewEncoder(conn).Encode(map[string][]string{"args": args}); err != nil {
		return reply, fmt.Errorf("send request: %w", err)
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxReply)).Decode(&reply); err != nil {
		return reply, fmt.Errorf("read reply: %w", err)
	}
	return reply, nil
}

func (w *warden) control(ctx context.Context, args ...string) (string, error) {
	reply, err := w.request(ctx, append([]string{"--root=" + sealed + "/runsc"}, args...)...)
	if err == nil && reply.Failed {
		err = errors.New("runsc failed")
	}
	return reply.Output, err
}

// requestTimeout bounds a request for a sandbox's resource use.
const requestTimeout = 5 * time.Second

func (w *warden) Usage() host.Usage {
	var reply wardenReply
	if alive, err := w.Alive(); alive || err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		reply, _ = w.request(ctx)
	} else {
		reply, _ = w.end()
		reply.Disk = 0 // it was freed with the sentry
	}
	return host.Usage{CPU: reply.CPU, Memory: reply.Memory, Peak: reply.Peak, PIDs: reply.PIDs, Disk: reply.Disk}
}

func (w *warden) words() string {
	reply, _ := w.end()
	return reply.Words
}

// end returns the results of an ended sandbox, or zero if its warden was killed.
func (w *warden) end() (reply wardenReply, err error) {
	raw, err := os.ReadFile(w.path("end.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return wardenReply{}, nil
	}
	if err != nil {
		return wardenReply{}, err
	}
	if json.Unmarshal(raw, &reply) != nil {
		return wardenReply{}, nil // it was killed while it wrote the file
	}
	return reply, nil
}

// noNamespaces explains why the kernel refuses namespaces to a user other than root.
func noNamespaces(err error) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOSPC) &&
		!errors.Is(err, unix.EINVAL) {
		return err
	}
	for _, sysctl := range []struct{ path, name, forbids, allow string }{
		{"/proc/sys/kernel/unprivileged_userns_clone", "kernel.unprivileged_userns_clone", "0", "1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "kernel.apparmor_restrict_unprivileged_userns", "1",
			"0"},
		{"/proc/sys/user/max_user_namespaces", "user.max_user_namespaces", "0", "10000"},
	} {
		raw, rerr := os.ReadFile(sysctl.path)
		if rerr == nil && strings.TrimSpace(string(raw)) == sysctl.forbids {
			return fmt.Errorf("this kernel gives user namespaces to root only: run as root, or sysctl -w %s=%s (%w)",
				sysctl.name, sysctl.allow, err)
		} else if rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			continue
		}
	}
	return fmt.Errorf(
		"user namespaces cannot be created here, as in a restricted container; run as root, or allow the system calls clone and unshare to create them: %w", err)
}
