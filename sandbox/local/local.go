// Package local runs sandboxes that are not: the guest as a process of the host,
// with all that its user may do there.
//
// It is for developing Berth on a machine without privileges. A sandbox is a
// directory, with work/ in the place of /mnt/data, and processes that are known
// by a variable in their environment. Nothing is limited.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox/driver"
)

// Name is what a configuration must call this driver.
const Name = "unsafe-local"

// newPrefix marks a directory in which Create is not finished. No id has it.
const newPrefix = ".new-"

// Options say where the driver finds its things.
type Options struct {
	// Name must be "unsafe-local", as the configuration has it.
	Name string

	// StateDir holds the sandboxes. It is created if need be.
	StateDir string

	// GuestPath is the berth-guest program.
	GuestPath string

	// Logger, slog.Default if nil.
	Logger *slog.Logger
}

// A Driver runs guests on the host. Its methods are safe for concurrent use.
type Driver struct {
	opts   Options
	bootID string
}

var _ driver.Driver = (*Driver)(nil)

// Open refuses any Name but "unsafe-local", and says loudly what it accepts.
func Open(opts Options) (*Driver, error) {
	if opts.Name != Name {
		return nil, fmt.Errorf("local: commands would run on this machine without any isolation; to accept that, name the driver %q, not %q", Name, opts.Name)
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
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	d := &Driver{opts: opts, bootID: strings.TrimSpace(string(raw))}
	if err := d.prepareStateDir(); err != nil {
		return nil, fmt.Errorf("local: state directory: %w", err)
	}
	opts.Logger.Warn("unsafe-local: commands run on this machine without any isolation")
	return d, nil
}

// prepareStateDir makes the directory and clears what a crash in the middle of
// Create left behind.
func (d *Driver) prepareStateDir() error {
	if err := os.MkdirAll(d.sandboxesDir(), 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(d.sandboxesDir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), newPrefix) {
			if err := os.RemoveAll(filepath.Join(d.sandboxesDir(), e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Driver) sandboxesDir() string { return filepath.Join(d.opts.StateDir, "sandboxes") }

// Features says that there are none.
func (d *Driver) Features() driver.Features {
	return driver.Features{Isolation: "none", Network: true}
}

// A record is what is kept of a sandbox's making.
type record struct {
	BootID string   `json:"boot_id"` // of the machine at the time
	Env    []string `json:"env"`
}

// Create makes the sandbox's directory, with all that is in it at once. Rootfs and
// limits are ignored.
func (d *Driver) Create(_ context.Context, spec driver.Spec) (err error) {
	s, err := d.sandbox(spec.ID)
	if err != nil {
		return fmt.Errorf("local: create: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("local: create %s: %w", spec.ID, err)
		}
	}()
	if _, err := os.Lstat(s.dir); err == nil {
		return fs.ErrExist
	}
	dir := filepath.Join(d.sandboxesDir(), newPrefix+s.id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(dir) // nothing is there any more after the rename
	for _, sub := range []string{"work", "run"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	raw, err := json.Marshal(record{BootID: d.bootID, Env: spec.Env})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "sandbox.json"), raw, 0o600); err != nil {
		return err
	}
	return os.Rename(dir, s.dir)
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

// Stats reports whether the guest lives; nothing is measured.
func (d *Driver) Stats(_ context.Context, id string) (driver.Stats, error) {
	s, err := d.find(id)
	if err != nil {
		return driver.Stats{}, err
	}
	rec, err := s.record()
	switch _, statErr := os.Stat(s.path("started")); {
	case err != nil:
		return driver.Stats{State: driver.StateDead, Reason: driver.ReasonKilled}, nil
	case rec.BootID != d.bootID:
		return driver.Stats{State: driver.StateDead, Reason: driver.ReasonHost}, nil
	case statErr != nil:
		return driver.Stats{State: driver.StateCreated}, nil
	case s.alive():
		return driver.Stats{State: driver.StateRunning}, nil
	}
	return driver.Stats{State: driver.StateDead, Reason: driver.ReasonKilled}, nil
}

// Pause returns errors.ErrUnsupported.
func (d *Driver) Pause(context.Context, string) error { return errors.ErrUnsupported }

// Resume returns errors.ErrUnsupported.
func (d *Driver) Resume(context.Context, string) error { return errors.ErrUnsupported }

// Destroy kills every process of the sandbox and removes its directory.
func (d *Driver) Destroy(ctx context.Context, id string) error {
	s, err := d.sandbox(id)
	if err != nil {
		return fmt.Errorf("local: destroy: %w", err)
	}
	if err := s.kill(ctx); err != nil {
		return fmt.Errorf("local: destroy %s: %w", id, err)
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("local: destroy %s: %w", id, err)
	}
	return nil
}

// List returns the ids of all sandboxes that exist, alive or dead.
func (d *Driver) List(context.Context) ([]string, error) {
	entries, err := os.ReadDir(d.sandboxesDir())
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && driver.CheckID(e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// A sandbox is one directory of the driver's.
type sandbox struct {
	id  string
	dir string
}

func (d *Driver) sandbox(id string) (sandbox, error) {
	if err := driver.CheckID(id); err != nil {
		return sandbox{}, err
	}
	return sandbox{id: id, dir: filepath.Join(d.sandboxesDir(), id)}, nil
}

// find is sandbox, but returns driver.ErrNotFound where there is none.
func (d *Driver) find(id string) (sandbox, error) {
	s, err := d.sandbox(id)
	if err != nil {
		return sandbox{}, err
	}
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return sandbox{}, fmt.Errorf("local: %s: %w", id, driver.ErrNotFound)
	} else if err != nil {
		return sandbox{}, err
	}
	return s, nil
}

func (s sandbox) path(elem string) string { return filepath.Join(s.dir, elem) }

func (s sandbox) record() (record, error) {
	var r record
	raw, err := os.ReadFile(s.path("sandbox.json"))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(raw, &r)
}

// dial connects through a descriptor, because the path may be longer than a
// socket's address can be.
func (s sandbox) dial(ctx context.Context) (net.Conn, error) {
	fd, err := unix.Open(s.path(socket), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: s.path(socket), Err: err}
	}
	defer unix.Close(fd)
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
}
