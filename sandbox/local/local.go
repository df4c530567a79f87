// Package local runs guests without isolation: as processes of the host, with all permissions
// of its user.
//
// It is for developing Berth on a machine without privileges. A sandbox is a directory, with
// work/ in place of /mnt/data, and processes that are identified by an environment variable.
// Nothing is limited.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
)

// Name is the name of this driver in a configuration.
const Name = "unsafe-local"

// Options are the paths of a Driver's files.
type Options struct {
	// Name must be "unsafe-local", as in the configuration.
	Name string

	// StateDir holds the sandboxes. Open creates it if it does not exist.
	StateDir string

	// GuestPath is the berth-guest program.
	GuestPath string

	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// A Driver runs guests on the host. Its methods are safe for concurrent use.
type Driver struct {
	opts   Options
	dir    sandbox.Dir
	bootID string
}

var _ sandbox.Driver = (*Driver)(nil)

// Open returns an error for any Name but "unsafe-local", and logs a warning.
func Open(opts Options) (*Driver, error) {
	if opts.Name != Name {
		return nil, fmt.Errorf(
			"local: commands would run on this machine without any isolation; to accept that, set the driver to %q, not %q",
			Name, opts.Name)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	for _, p := range []*string{&opts.StateDir, &opts.GuestPath} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return nil, fmt.Errorf("local: %w", err)
		}
		*p = abs
	}
	if _, err := os.Stat(opts.GuestPath); err != nil {
		return nil, fmt.Errorf("local: guest program: %w", err)
	}
	d := &Driver{opts: opts}
	var err error
	if d.bootID, err = sandbox.BootID(); err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	if d.dir, err = sandbox.OpenDir(filepath.Join(opts.StateDir, "sandboxes")); err != nil {
		return nil, fmt.Errorf("local: state directory: %w", err)
	}
	// Processes are identified by the directory of their sandbox, so those of a copy differ.
	_, err = sandbox.Instance(opts.StateDir, func() error {
		opts.Logger.Warn("unsafe-local: the state directory is a copy; its sandboxes are left to the original", "dir",
			opts.StateDir)
		return sandbox.Discard(filepath.Join(opts.StateDir, "sandboxes"))
	})
	if err != nil {
		return nil, fmt.Errorf("local: state directory: %w", err)
	}
	opts.Logger.Warn("unsafe-local: commands run on this machine without any isolation")
	return d, nil
}

// Features returns no capabilities.
func (d *Driver) Features() sandbox.Features {
	return sandbox.Features{Isolation: "none", Network: true}
}

// A record is the stored description of a sandbox.
type record struct {
	BootID string   `json:"boot_id"` // of the machine at creation
	Env    []string `json:"env"`
}

// Create creates the sandbox's directory with all its files atomically. It ignores the template
// and limits.
func (d *Driver) Create(_ context.Context, spec sandbox.Spec) error {
	if len(spec.Mounts) > 0 {
		return fmt.Errorf("local: create: mounts: %w", errors.ErrUnsupported)
	}
	err := d.dir.Create(spec.ID, func(dir string) error {
		for _, sub := range []string{"work", "run"} {
			if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
				return err
			}
		}
		raw, err := json.Marshal(record{BootID: d.bootID, Env: spec.Env})
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "sandbox.json"), raw, 0o600)
	})
	if err != nil {
		return fmt.Errorf("local: create: %w", err)
	}
	return nil
}

// Dial connects to the guest's socket.
func (d *Driver) Dial(ctx context.Context, id string) (net.Conn, error) {
	s, err := d.find(id)
	if err != nil {
		return nil, err
	}
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("local: dial %s: %w", id, err)
	}
	return conn, nil
}

// Stats reports whether the guest is alive; it measures nothing.
func (d *Driver) Stats(_ context.Context, id string) (sandbox.Stats, error) {
	s, err := d.find(id)
	if err != nil {
		return sandbox.Stats{}, err
	}
	stats, err := d.state(s)
	if err != nil {
		return sandbox.Stats{}, fmt.Errorf("local: stats %s: %w", id, err)
	}
	return stats, nil
}

// state returns the state of a sandbox. An error means that it is unknown.
func (d *Driver) state(s instance) (sandbox.Stats, error) {
	alive, err := s.alive()
	if err != nil {
		return sandbox.Stats{}, err
	}
	if alive {
		return sandbox.Stats{State: sandbox.StateRunning}, nil
	}
	state, reason, err := sandbox.StateOnDisk(s.dir, d.bootID)
	return sandbox.Stats{State: state, Reason: reason}, err
}

// Pause returns errors.ErrUnsupported.
func (d *Driver) Pause(context.Context, string) error { return errors.ErrUnsupported }

// Resume returns errors.ErrUnsupported.
func (d *Driver) Resume(context.Context, string) error { return errors.ErrUnsupported }

// Destroy kills every process of the sandbox and removes its directory.
func (d *Driver) Destroy(ctx context.Context, id string) error {
	dir, err := d.dir.Path(id)
	if err != nil {
		return fmt.Errorf("local: destroy: %w", err)
	}
	s := instance{dir: dir}
	if err := s.kill(ctx); err != nil {
		return fmt.Errorf("local: destroy %s: %w", id, err)
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("local: destroy %s: %w", id, err)
	}
	return nil
}

// List returns the ids of all sandboxes that exist, alive or dead.
func (d *Driver) List(context.Context) ([]string, error) { return d.dir.List() }

// An instance is one sandbox's directory.
type instance struct {
	dir string
}

// find returns the sandbox of an id, or sandbox.ErrNotFound.
func (d *Driver) find(id string) (instance, error) {
	dir, err := d.dir.Find(id)
	if err != nil {
		return instance{}, fmt.Errorf("local: %w", err)
	}
	return instance{dir: dir}, nil
}

func (s instance) path(elem string) string { return filepath.Join(s.dir, elem) }

// dial connects through a descriptor, because the path may be longer than a socket's address.
func (s instance) dial(ctx context.Context) (net.Conn, error) {
	fd, err := unix.Open(s.path(socket), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: s.path(socket), Err: err}
	}
	defer unix.Close(fd)
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
}
