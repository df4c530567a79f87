// Package docker runs sandboxes as containers of a Docker Engine, over its API.
//
// The engine may be on another machine or in a virtual one, as on a laptop: nothing
// is shared with it but the API, unless volumes are. All state is the engine's; here is a name:
//
//	StateDir/instance               tells this state directory's things from others
//	StateDir/instance.directory     which directory that is: a copy of it takes another name
//	StateDir/mounts/ID/             what a sandbox shares with this machine, if the engine can
//
//	container berth-INSTANCE-ID     a sandbox, there as long as it is
//	volume    berth-INSTANCE-HASH   the guest program, at /.berth in every sandbox
//	image     berth/template:HASH   a template's root file system
//	image     berth/nothing         what the volume is filled through
//
// The guest listens on a socket in the sandbox. Dial has the engine start a relay
// beside it, whose standard streams are the connection (docs/decisions/0009-docker-relay.md).
package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/berth-run/berth/sandbox"
)

// Labels of what this driver makes in the engine.
const (
	labelInstance = "run.berth.instance" // the state directory's name
	labelSandbox  = "run.berth.sandbox"  // a container's id in Spec
	labelRootfs   = "run.berth.rootfs"   // the path that an image was made from
)

// openTimeout bounds Open.
const openTimeout = time.Minute

// Options say which engine to use, and how.
type Options struct {
	// StateDir holds the name under which the engine keeps the sandboxes. It is
	// created if need be. One process at a time drives a state directory.
	StateDir string

	// GuestPath is the berth-guest program, statically linked, for the engine's
	// processor. Open copies it into the engine.
	GuestPath string

	// Host is the engine's address, such as unix:///var/run/docker.sock or
	// tcp://host:2376. Empty is what the docker command would use: DOCKER_HOST and
	// its companions, else the context that is chosen, else the local socket.
	Host string

	// Runtime is one of the runtimes that the engine is configured with, such as
	// runsc. Empty is the engine's default.
	Runtime string

	// Logger, slog.Default if nil.
	Logger *slog.Logger
}

// A Driver runs sandboxes on a Docker Engine. Its methods are safe for concurrent use.
type Driver struct {
	opts     Options
	log      *slog.Logger
	client   *client.Client
	info     system.Info
	features sandbox.Features
	instance string
	noRoute  string // why there is no route for addresses
	noMounts string // why there are no mounts
	noPTYs   string // why terminals are not counted by sandbox

	templates *templates
	guest     *guestVolume
	mounts    mountDir
	disks     disks
}

var _ sandbox.Driver = (*Driver)(nil)

// Open connects to the engine and prepares it. What it returns as an error is meant
// for the operator.
func Open(opts Options) (*Driver, error) {
	d := &Driver{opts: opts, log: cmp.Or(opts.Logger, slog.Default())}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	if err := d.open(ctx); err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	return d, nil
}

func (d *Driver) open(ctx context.Context) (err error) {
	if err := d.openState(); err != nil {
		return err
	}
	if d.client, err = connect(d.opts.Host); err != nil {
		return err
	}
	info, err := d.client.Info(ctx, client.InfoOptions{})
	if err != nil {
		return fmt.Errorf("the engine at %s: %w", d.client.DaemonHost(), err)
	}
	d.info = info.Info
	if d.info.OSType != "linux" {
		return fmt.Errorf("the engine runs %s containers; sandboxes need linux", d.info.OSType)
	}
	if _, ok := d.info.Runtimes[d.runtime()]; !ok {
		return fmt.Errorf("the engine has no runtime %q", d.runtime())
	}
	d.templates = &templates{client: d.client, log: d.log, instance: d.instance}
	d.guest = &guestVolume{client: d.client, info: d.info, instance: d.instance, program: d.opts.GuestPath}
	disk, err := d.guest.prepare(ctx)
	if err != nil {
		return err
	}
	d.features = sandbox.Features{
		Isolation:   isolation(d.runtime(), d.info.Runtimes[d.runtime()].Path),
		Pause:       true,
		MemoryLimit: d.info.MemoryLimit,
		CPULimit:    d.info.CPUCfsQuota,
		PIDLimit:    d.info.PidsLimit,
		DiskLimit:   disk,
	}
	d.features.OwnKernel = d.features.Isolation == "microvm"
	d.features.LimitsShown = d.features.Isolation == "gvisor"
	d.templates.keepTmp = d.features.Isolation == "gvisor"
	if err := d.detect(ctx); err != nil {
		return err
	}
	ids, err := d.List(ctx)
	if err != nil {
		return err
	}
	if err := d.mounts.sweep(ids); err != nil {
		return err
	}
	return d.templates.sweep(ctx, d.templates.current)
}

// openState makes the state directory and reads the name of this driver's things.
func (d *Driver) openState() (err error) {
	if d.opts.StateDir == "" {
		return errors.New("no state directory given")
	}
	if err := os.MkdirAll(d.opts.StateDir, 0o700); err != nil {
		return err
	}
	if d.opts.StateDir, err = filepath.EvalSymlinks(d.opts.StateDir); err != nil {
		return err
	}
	if d.opts.StateDir, err = filepath.Abs(d.opts.StateDir); err != nil {
		return err
	}
	d.mounts = mountDir(filepath.Join(d.opts.StateDir, "mounts"))
	d.instance, err = sandbox.Instance(d.opts.StateDir, d.discardCopies)
	return err
}

// detect tries which features the engine has.
func (d *Driver) detect(ctx context.Context) (err error) {
	if d.features.Isolation == "docker" {
		if err := d.tryShared(ctx); err != nil {
			return err
		}
	}
	if d.noRoute, err = d.tryRoute(ctx); err != nil {
		return fmt.Errorf("try a route for addresses: %w", err)
	}
	d.features.Routes = d.noRoute == ""
	if d.noMounts, err = d.tryMounts(ctx); err != nil {
		return fmt.Errorf("try a mount: %w", err)
	}
	d.features.Mounts = d.noMounts == ""
	return nil
}

// discardCopies removes what a copy of a state directory has of mounts. The engine's
// containers, which bear the original's name, are left to that.
func (d *Driver) discardCopies() error {
	d.log.Warn("docker: the state directory is a copy; its sandboxes are left to the original", "dir", d.opts.StateDir)
	return sandbox.Discard(string(d.mounts))
}

// Features says what the engine can do.
func (d *Driver) Features() sandbox.Features { return d.features }

// runtime returns the name of the runtime that runs the sandboxes.
func (d *Driver) runtime() string { return cmp.Or(d.opts.Runtime, d.info.DefaultRuntime) }

// isolation returns the word for what a runtime puts around a sandbox. The engine's
// administrator chooses a runtime's name; its program's is not theirs.
func isolation(name, program string) string {
	for _, s := range []string{path.Base(program), name} {
		switch {
		case strings.Contains(s, "runsc"):
			return "gvisor"
		case strings.Contains(s, "kata"):
			return "microvm"
		}
	}
	return "docker"
}

// An Engine is what is to be known of an engine before it is used.
type Engine struct {
	Host    string // its address
	Version string
	System  string   // the operating system and processor that it runs on
	Runtime string   // what runs the sandboxes
	Storage string   // the storage driver
	Lacks   []string // what it cannot do, in words
}

// Engine says what the driver runs on.
func (d *Driver) Engine() Engine {
	e := Engine{Host: d.client.DaemonHost(), Version: d.info.ServerVersion, Runtime: d.runtime(), Storage: d.info.Driver,
		System: d.info.OperatingSystem + ", " + d.info.Architecture}
	for _, l := range []struct {
		has   bool
		words string
	}{
		{d.features.MemoryLimit, "memory is not limited"},
		{d.info.SwapLimit, "swap is not limited"},
		{d.features.CPULimit, "CPU is not limited"},
		{d.features.PIDLimit, "processes are not limited"},
		{d.features.Routes, "policies cannot name addresses (" + d.noRoute + ")"},
		{d.features.Mounts, "volumes cannot be mounted (" + d.noMounts + ")"},
		{d.features.DiskLimit, "disk is not limited (overlay2 on xfs with pquota would)"},
		{d.features.Isolation != "docker" || d.remapped(), "root in a sandbox is root of the engine's machine, without its powers (userns-remap, a rootless engine or runsc would change that)"},
		{d.noPTYs == "", "one container can take all terminals of the engine's machine (" + d.noPTYs + ")"},
	} {
		if !l.has {
			e.Lacks = append(e.Lacks, l.words)
		}
	}
	return e
}

// remapped reports whether the engine's containers are in a user namespace.
func (d *Driver) remapped() bool { return d.hasSecurity("userns") || d.hasSecurity("rootless") }

func (d *Driver) hasSecurity(name string) bool {
	return slices.ContainsFunc(d.info.SecurityOptions, func(s string) bool {
		return s == name || strings.HasPrefix(s, "name="+name)
	})
}

// Clear removes from the engine what Open and Create have put there for this state
// directory. Its sandboxes must be gone, and the driver is of no more use.
func (d *Driver) Clear(ctx context.Context) error {
	d.guest.name = "" // sweep removes all
	err := errors.Join(d.templates.sweep(ctx, nil), d.guest.sweep(ctx), d.client.Close())
	if err != nil {
		return fmt.Errorf("docker: clear: %w", err)
	}
	return nil
}

// List returns the ids of all sandboxes that exist, alive or dead.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	all, err := d.client.ContainerList(ctx, client.ContainerListOptions{All: true,
		Filters: make(client.Filters).Add("label", labelInstance+"="+d.instance, labelSandbox)})
	if err != nil {
		return nil, fmt.Errorf("docker: list: %w", err)
	}
	ids := make([]string, 0, len(all.Items))
	for _, c := range all.Items {
		if id := c.Labels[labelSandbox]; sandbox.CheckID(id) == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// container returns the name of the container for a sandbox, be there one or not.
func (d *Driver) container(id string) (string, error) {
	if err := sandbox.CheckID(id); err != nil {
		return "", err
	}
	return "berth-" + d.instance + "-" + id, nil
}
