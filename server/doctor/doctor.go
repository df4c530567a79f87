// Package doctor finds out what this machine can run, and what prevents a server from starting on it.
package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/driver"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/server/templates"
)

// Examine checks what this machine can run, and whether its models answer. err is the error of the configuration, if
// any.
func Examine(ctx context.Context, state string, c *config.Config, err error) []Finding {
	all := []Finding{kernel()}
	if err != nil || c.Driver != "docker" && c.Driver != "kubernetes" { // their sandboxes may be on other machines
		name := ""
		if err == nil {
			name = c.Driver
		}
		all = append(all, privileges(name))
		if os.Geteuid() == 0 {
			all = append(all, controlGroups())
		} else if name == "gvisor" {
			all = append(all, losses()...)
		}
	}
	if err == nil && c.Driver == "gvisor" {
		all = append(all, virtualisation())
	}
	all = append(all, openFiles(), disk(state, c), erasure(state))
	if err != nil {
		return append(all, Finding{What: "configuration", Detail: err.Error()})
	}
	all = append(all, Finding{What: "configuration", OK: true, Detail: "driver " + c.Driver + ", template " +
		c.Template, Advice: strings.Join(c.Warnings(), "\n")})
	all = append(all, checkUpstreams(ctx, c, upstreamWait)...)
	if c.Blobs != "" {
		all = append(all, ExamineBucket(ctx, state, c.Blobs))
	}
	all = append(all, checkDatabase(ctx, state, c)...)
	all = append(all, programs(c)...)
	if found := checkDriver(ctx, state, c); len(found) > 0 {
		if all = append(all, found...); !found[len(found)-1].OK {
			return all
		}
	}
	switch c.Driver {
	case "microvm":
		c = withKernel(state, c)
	case config.UnsafeLocal:
		return all
	}
	t, f := CheckTemplate(state, c)
	all = append(all, f)
	if !f.OK {
		return all
	}
	return append(all, trySandbox(ctx, state, c, t))
}

func kernel() Finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Finding{What: "kernel", Detail: err.Error()}
	}
	return Finding{What: "kernel", OK: true, Detail: unix.ByteSliceToString(u.Sysname[:]) + " " +
		unix.ByteSliceToString(u.Release[:])}
}

func controlGroups() Finding {
	f := Finding{What: "cgroups", OK: true}
	v2, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err == nil && strings.Contains(string(v2), "memory") {
		f.Detail = "version 2: " + strings.TrimSpace(string(v2))
		return f
	}
	var v1 []string
	for _, c := range []string{"memory", "cpu", "pids"} {
		if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", c)); err == nil {
			v1 = append(v1, c)
		}
	}
	f.Detail = "version 1: " + strings.Join(v1, " ")
	if len(v1) < 3 {
		f.OK, f.Advice = false, "limits need the controllers memory, cpu and pids"
	}
	return f
}

func virtualisation() Finding {
	f := Finding{What: "kvm", OK: true, Detail: "not needed: gVisor uses systrap"}
	if fd, err := unix.Open("/dev/kvm", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		unix.Close(fd)
		f.Detail = "/dev/kvm opens, but is not needed: gVisor uses systrap"
	}
	return f
}

// erasure reports whether the data of deleted containers becomes unreadable.
func erasure(dir string) Finding {
	f := Finding{What: "erasure", OK: true,
		Detail: "a container's data is encrypted with a key that is destroyed with the container"}
	if err := host.CanSeal(state.Existing(dir)); err != nil {
		f.Detail = "deleted files of containers may remain readable on the raw volume"
		f.Advice = "enable encryption on ext4 (tune2fs -O encrypt DEVICE, also while mounted), or put the state directory on an encrypted volume; see " + berth.DocsURL + "audit.md"
	}
	return f
}

func disk(dir string, c *config.Config) Finding {
	f := Finding{What: "disk", OK: true}
	var st unix.Statfs_t
	if err := unix.Statfs(state.Existing(dir), &st); err != nil {
		return Finding{What: "disk", Detail: err.Error()}
	}
	free, low := int64(st.Bavail)*st.Bsize, diskspace.Low(int64(st.Blocks)*st.Bsize)
	if c != nil && c.Disk.Low != nil {
		low = int64(*c.Disk.Low)
	}
	f.Detail = fmt.Sprintf("%s free for %s", inGB(free), dir)
	if free < low {
		f.OK, f.Detail = false, fmt.Sprintf("the disk is full or nearly full: %s free for %s", inGB(free), dir)
	}
	if free < low+4<<30 {
		f.Advice = fmt.Sprintf(
			"below %s nothing new is stored (disk.low in the configuration); a base template takes 1.2 GB, a container up to its disk limit",
			inGB(low))
	}
	return f
}

// inGB formats a number of bytes for people: in GB, or in MB below 10 GB.
func inGB(n int64) string {
	if n < 10<<30 {
		return fmt.Sprintf("%d MB", n>>20)
	}
	return fmt.Sprintf("%d GB", n>>30)
}

// trySandbox starts a sandbox in a temporary state directory and runs a command in it.
func trySandbox(ctx context.Context, state string, c *config.Config, t image.Template) Finding {
	start := time.Now()
	if err := runSandbox(ctx, state, c, t); err != nil {
		return Finding{What: c.Driver, Detail: err.Error(), Advice: "containers cannot start on this machine"}
	}
	return Finding{What: c.Driver, OK: true,
		Detail: fmt.Sprintf("started a sandbox, ran a command and destroyed it in %d ms",
			time.Since(start).Milliseconds())}
}

func runSandbox(ctx context.Context, state string, config *config.Config, t image.Template) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // an engine may have to import the template
	defer cancel()
	dir, err := scratch(state)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d, err := driver.Open(dir, config, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if d, ok := d.(interface{ Clear(context.Context) error }); ok {
		defer d.Clear(context.WithoutCancel(ctx))
	}
	const id = "doctor"
	defer d.Destroy(context.WithoutCancel(ctx), id)
	if err := d.Create(ctx, sandbox.Spec{ID: id, Template: templates.ForDriver(t)}); err != nil {
		return err
	}
	if err := d.Start(ctx, id); err != nil {
		return err
	}
	c := guest.NewClient(func(ctx context.Context) (net.Conn, error) { return d.Dial(ctx, id) })
	defer c.Close()
	for {
		err := c.Ping(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the guest does not answer: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	for ev, err := range c.Shell(ctx, guest.ShellCall{CallID: id, Commands: []string{"true"}}) {
		if err != nil {
			return err
		}
		if ev.Kind == guest.ShellExit && ev.ExitCode != 0 {
			return fmt.Errorf("true exited with %d", ev.ExitCode)
		}
	}
	return nil
}
