// Package docker runs sandboxes as containers of a Docker Engine, over its API.
//
// The engine may be on another machine or in a virtual one, as on a laptop: only the API is
// shared with it, and volumes if they are used. The engine holds all state except a name:
//
//	StateDir/instance               distinguishes this state directory's objects from others
//	StateDir/instance.directory     identifies the directory: a copy gets another name
//	StateDir/mounts/ID/             a sandbox's mounts of this machine, if the engine supports them
//
//	container berth-INSTANCE-ID     a sandbox, until it is destroyed
//	volume    berth-INSTANCE-HASH   the guest program, at /.berth in every sandbox
//	image     berth/template:HASH   a template's root file system
//	image     berth/nothing         for the container through which the volume is filled
//
// The guest listens on a socket in the sandbox. Dial makes the engine start a relay beside it,
// whose standard streams are the connection (docs/decisions/0009-docker-relay.md).
package docker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/berth-run/berth/sandbox"
)

// Labels of the driver's objects in the engine.
const (
	labelInstance = "run.berth.instance" // the state directory's name
	labelSandbox  = "run.berth.sandbox"  // a container's id in Spec
	labelDigest   = "run.berth.digest"   // of the template that an image was imported from
	labelRootfs   = "run.berth.rootfs"   // the path that an image was made from
)

// Paths inside a sandbox.
const (
	guestDir    = "/.berth"
	guestPath   = guestDir + "/guest" // the guest program
	guestRunDir = guestDir + "/run"   // a small tmpfs
	guestSocket = guestRunDir + "/guest.sock"
	guestLog    = guestRunDir + "/log"
	hostname    = "sandbox"
)

// Options select the engine and configure it.
type Options struct {
	// StateDir holds the name under which the engine stores the sandboxes. Open creates it if
	// it does not exist. Only one process at a time may use a state directory.
	StateDir string

	// GuestPath is the statically linked berth-guest program for the engine's CPU. Open copies
	// it into the engine.
	GuestPath string

	// Host is the engine's address, such as unix:///var/run/docker.sock or tcp://host:2376. If
	// empty, it is the docker command's: DOCKER_HOST and related variables, else the current
	// context, else the local socket.
	Host string

	// Runtime is one of the engine's configured runtimes, such as runsc. Empty means the
	// engine's default.
	Runtime string

	// Logger is slog.Default if nil.
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
	noRoute  string // why routes for addresses do not work
	noMounts string // why mounts do not work
	noPTYs   string // why terminals cannot be limited by sandbox

	templates *templates
	guest     *guestVolume
	mounts    mountDir
	disks     disks
}

var _ sandbox.Driver = (*Driver)(nil)

// Features returns the capabilities of the engine.
func (d *Driver) Features() sandbox.Features { return d.features }

// runtime returns the name of the runtime that runs the sandboxes.
func (d *Driver) runtime() string { return cmp.Or(d.opts.Runtime, d.info.DefaultRuntime) }

// An Engine describes an engine for the operator.
type Engine struct {
	Host    string // address
	Version string
	System  string   // operating system and CPU
	Runtime string   // runtime of the containers
	Storage string   // the storage driver
	Lacks   []string // missing features, in words
}

// Engine describes the driver's engine.
func (d *Driver) Engine() Engine {
	e := Engine{Host: d.client.DaemonHost(), Version: d.info.ServerVersion, Runtime: d.runtime(),
		Storage: d.info.Driver,
		System:  d.info.OperatingSystem + ", " + d.info.Architecture}
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
		{d.features.Isolation != "docker" || d.remapped(),
			"root in a sandbox is root of the engine's machine, without its powers (userns-remap, a rootless engine or runsc would change that)"},
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

// container returns the name of the container of a sandbox, which need not exist.
func (d *Driver) container(id string) (string, error) {
	if err := sandbox.CheckID(id); err != nil {
		return "", err
	}
	return "berth-" + d.instance + "-" + id, nil
}
