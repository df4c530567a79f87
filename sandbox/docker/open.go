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
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/berth-run/berth/sandbox"
)

// openTimeout bounds Open.
const openTimeout = time.Minute

// Open connects to the engine and prepares it. Its errors are for the operator.
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

// openState creates the state directory and reads the name of this driver's objects.
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

// detect tries which features the engine supports.
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

// discardCopies removes the mounts in a copied state directory. The engine's containers have
// the original's name and stay.
func (d *Driver) discardCopies() error {
	d.log.Warn("docker: the state directory is a copy; its sandboxes are left to the original", "dir", d.opts.StateDir)
	return sandbox.Discard(string(d.mounts))
}

// isolation returns the name of a runtime's isolation. The engine's administrator chooses a
// runtime's name, but not the name of its program.
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

// Clear removes the objects of this state directory that Open and Create added to the engine.
// Its sandboxes must be gone. The driver cannot be used afterwards.
func (d *Driver) Clear(ctx context.Context) error {
	d.guest.name = "" // so that sweep removes all
	err := errors.Join(d.templates.sweep(ctx, nil), d.guest.sweep(ctx), d.client.Close())
	if err != nil {
		return fmt.Errorf("docker: clear: %w", err)
	}
	return nil
}
