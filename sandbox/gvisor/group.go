package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// A group is root's wall: a cgroup, and namespaces of a thread of this process.
type group struct {
	id        string
	processes *host.Processes

	dir      string
	runsc    *os.File
	skeleton string
	cgroup   host.Cgroup
}

func (g *group) path(elem string) string { return g.dir + "/" + elem }
func (g *group) run() string             { return g.dir + "/run" }
func (g *group) words() string           { return "" }

func (g *group) Kill(ctx context.Context) error { return g.cgroup.Kill(ctx) }

// runOptions bound the tmpfs with the guest's socket and the logs. Root in the sandbox may
// write there: filling it harms only its own logs, and its pages count as the sandbox's memory.
const runOptions = "mode=0700,size=4m,nr_inodes=64"

func (g *group) raise(l sandbox.Limits) error {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("berth", g.run(), "tmpfs", flags, runOptions); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	for _, sub := range []string{"run/guest", "run/log"} {
		if err := os.Mkdir(g.path(sub), 0o700); err != nil {
			return err
		}
	}
	if err := g.cgroup.Create(l, hostPIDs(l)); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// highFD is the first descriptor number that the sentry uses for itself.
const highFD = 256

// start runs runsc. A log receives the output of runsc and the container, and the sentry's last
// messages.
func (g *group) start(ctx context.Context, args []string, rec record, sleeps bool) error {
	if sleeps {
		if err := wake(g.path("run/guest")); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(g.path("run/log/runsc.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(procFD(g.runsc), args...)
	cmd.Dir = g.dir
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}

	// The sentry moves its standard streams to 256 and up. To grow the descriptor table of a
	// process with threads, the kernel waits for an RCU grace period (16 ms here). A child's
	// table fits its parent's open descriptors, so an open 256 in runsc saves the sentry the
	// growth.
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	cmd.ExtraFiles = make([]*os.File, highFD-2)
	cmd.ExtraFiles[highFD-3] = null
	if err := g.launch(cmd, rec.Rootfs); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	select {
	case err := <-exited:
		if err != nil {
			return fmt.Errorf("runsc: %w", err)
		}
		return nil
	case <-ctx.Done():
		// The process is in the cgroup, so the caller's kill ends it.
		return fmt.Errorf("runsc: %w", context.Cause(ctx))
	}
}

// launch starts cmd in the sandbox's cgroup, in a network namespace with nothing but lo, and in
// a mount namespace in which s/rootfs shows the template. The namespaces are those of a thread
// that runs only this; they end with the sandbox's processes.
//
// `runsc` would create a network namespace too, but leave lo down, and then gVisor gives the
// sandbox no lo.
func (g *group) launch(cmd *exec.Cmd, rootfs string) error {
	layers := []string{g.skeleton, rootfs}
	if _, err := os.Stat(g.path(mountPoints)); err == nil {
		layers = append([]string{g.path(mountPoints)}, layers...)
	}
	entered, err := g.cgroup.Enter(cmd)
	if err != nil {
		return err
	}
	defer entered()
	return host.OnOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := mountRootfs(g.path("rootfs"), layers); err != nil {
			return fmt.Errorf("mount template: %w", err)
		}
		if err := setLoopbackUp(); err != nil {
			return fmt.Errorf("lo: %w", err)
		}
		if err := g.cgroup.JoinThread(); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
		return cmd.Start()
	})
}

// control runs a runsc command on the running sandbox.
func (g *group) control(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, procFD(g.runsc), append([]string{"--root=" + sealed + "/runsc"}, args...)...)
	cmd.Dir = g.dir
	cmd.Env = []string{}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (g *group) Remove(ctx context.Context) error {
	// EINVAL means not a mount point, ENOENT not even a directory.
	err := unix.Unmount(g.run(), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount run: %w", err)
	}
	return g.cgroup.Remove(ctx)
}

func (g *group) Usage() host.Usage {
	u := g.cgroup.Usage()
	if pid, alive, err := g.sentry(); alive && err == nil {
		u.Disk = diskUsed(pid, g.path(sealed+"/disk"))
	}
	return u
}

func (g *group) Alive() (bool, error) {
	_, alive, err := g.sentry()
	return alive, err
}

func (g *group) OOM() (bool, error) {
	kills, err := g.cgroup.OOMKills()
	return kills > 0, err
}

// sentry returns the process id of the sentry, if it is alive.
func (g *group) sentry() (int, bool, error) { return g.processes.Find(g.id, g.search) }

// search finds the sentry by its pid file and the cgroup: the number may be reused by another
// process, but the cgroup cannot be another sandbox's.
func (g *group) search() (int, bool, error) { return host.FindIn(g.cgroup, g.path("pid")) }

// diskUsed returns the bytes on disk of the sandbox's writable layer: the unlinked file below
// dir that the sentry has open. Its path is not usable, because its mount is in no namespace
// any more.
func diskUsed(pid int, dir string) int64 {
	var volume unix.Stat_t
	if unix.Stat(dir, &volume) != nil {
		return 0
	}
	fds := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(fds)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		link := filepath.Join(fds, e.Name())
		target, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(filepath.Base(target), "runsc-filestore-") {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(link, &st) == nil && st.Nlink == 0 && st.Dev == volume.Dev {
			return st.Blocks * 512
		}
	}
	return 0
}
