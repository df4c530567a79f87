package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox"
)

// Sealed is the directory in a sandbox's directory with its disk. If the volume supports it, it
// is encrypted with a key that is destroyed with the sandbox.
const Sealed = "sealed"

// A Sandbox is a sandbox whose processes run on this host. Its methods work on the existing
// files, which after a crash may be in any state.
type Sandbox interface {
	// Alive reports whether the sandbox runs or is paused. An error means unknown: only false
	// with a nil error proves its end.
	Alive() (bool, error)

	// Paused reports whether a live sandbox is paused.
	Paused() (bool, error)

	// OOM reports whether an ended sandbox reached its memory limit.
	OOM() (bool, error)

	// Usage returns the current resource use, or the known part of it if the sandbox has ended.
	Usage() Usage

	// Signal sends SIGSTOP or SIGCONT to the processes that write to the disk, and returns
	// their ids. It does nothing if the sandbox does not run.
	Signal(sig unix.Signal) (pids []int, err error)

	// Kill ends all processes of the sandbox.
	Kill(ctx context.Context) error

	// Free frees the blocks of the disk of a killed sandbox.
	Free() error

	// Remove removes what a killed sandbox has outside of its directory.
	Remove(ctx context.Context) error
}

// A Driver is what drivers of such sandboxes have in common. They differ in S, their sandbox. It
// is safe for concurrent use.
type Driver[S Sandbox] struct {
	Name      string // of the driver, for errors
	Dir       sandbox.Dir
	Instance  string // sandbox.Instance of the state directory
	BootID    string
	Processes Processes // of the sandboxes

	// New returns the sandbox with an id and a directory, which need not exist.
	New func(id, dir string) S
}

// Existing returns a Driver of the sandboxes in a state directory without writing to its volume,
// or nil if it has no sandboxes of its own. The caller sets New.
func Existing[S Sandbox](name, stateDir string) (*Driver[S], error) {
	d := &Driver[S]{Name: name}
	var found bool
	var err error
	if d.Instance, found, err = sandbox.FindInstance(stateDir); err != nil || !found {
		return nil, err
	}
	if d.Dir, err = sandbox.FindDir(filepath.Join(stateDir, "sandboxes")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: state directory: %w", name, err)
	}
	if d.BootID, err = sandbox.BootID(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

// At returns the sandbox of an id, which need not exist.
func (d *Driver[S]) At(id string) (s S, err error) {
	dir, err := d.Dir.Path(id)
	if err != nil {
		return s, err
	}
	return d.New(id, dir), nil
}

// Find returns an existing sandbox, or sandbox.ErrNotFound.
func (d *Driver[S]) Find(id string) (s S, err error) {
	dir, err := d.Dir.Find(id)
	if err != nil {
		return s, fmt.Errorf("%s: %w", d.Name, err)
	}
	return d.New(id, dir), nil
}

// UsedImages returns the paths of the images that the records of sandboxes name.
func (d *Driver[S]) UsedImages() (map[string]bool, error) {
	ids, err := d.Dir.List()
	if err != nil {
		return nil, err
	}
	used := make(map[string]bool)
	for _, id := range ids {
		dir, err := d.Dir.Path(id)
		if err != nil {
			return nil, err
		}
		var r struct {
			Image string `json:"image"`
		}
		if sandbox.ReadRecord(dir, &r) == nil {
			used[r.Image] = true
		}
	}
	return used, nil
}

// wrap adds the operation and the sandbox to err, unless it is nil.
func (d *Driver[S]) wrap(op, id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s %s: %w", d.Name, op, id, err)
}

// MarkStarted marks a sandbox as started. It returns an error if it was started or the machine
// restarted since its creation.
func (d *Driver[S]) MarkStarted(id string) error {
	dir, err := d.Dir.Path(id)
	if err != nil {
		return err
	}
	if err := sandbox.MarkStarted(dir); err != nil {
		return err
	}
	if _, reason, err := sandbox.StateOnDisk(dir, d.BootID); err != nil || reason == sandbox.ReasonHost {
		return errors.Join(err, errors.New("created before the machine was restarted"))
	}
	return nil
}

// Stats implements sandbox.Driver.
func (d *Driver[S]) Stats(id string) (sandbox.Stats, error) {
	s, err := d.Find(id)
	if err != nil {
		return sandbox.Stats{}, err
	}
	alive, err := s.Alive()
	if err != nil {
		return sandbox.Stats{}, d.wrap("stats", id, err)
	}
	u := s.Usage()
	stats := sandbox.Stats{CPU: u.CPU, Memory: u.Memory, MemoryPeak: u.Peak, PIDs: u.PIDs, Disk: u.Disk,
		Pressure: u.Pressure}
	if stats.State, stats.Reason, err = d.state(id, s, alive); err != nil {
		return sandbox.Stats{}, d.wrap("stats", id, err)
	}
	return stats, nil
}

// state returns the state of a sandbox whose processes are alive or not.
func (d *Driver[S]) state(id string, s S, alive bool) (sandbox.State, sandbox.Reason, error) {
	if alive {
		paused, err := s.Paused()
		if paused {
			return sandbox.StatePaused, "", nil
		}
		return sandbox.StateRunning, "", err
	}
	dir, err := d.Dir.Path(id)
	if err != nil {
		return "", "", err
	}
	state, reason, err := sandbox.StateOnDisk(dir, d.BootID)
	if err != nil || reason != sandbox.ReasonKilled {
		return state, reason, err
	}
	oom, err := s.OOM()
	if oom {
		return state, sandbox.ReasonOOM, nil
	}
	return state, reason, err
}

// Time limits of operations whose ctx has no deadline.
const (
	endTimeout    = 30 * time.Second // End and Destroy
	freezeTimeout = 5 * time.Second  // Freeze and Kill
)

// Freeze implements sandbox.Freezer.
func (d *Driver[S]) Freeze(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	pids, err := d.signal(id, unix.SIGSTOP)
	for _, pid := range pids {
		err = errors.Join(err, awaitStopped(ctx, pid))
	}
	return d.wrap("freeze", id, err)
}

// Thaw implements sandbox.Freezer.
func (d *Driver[S]) Thaw(id string) error {
	_, err := d.signal(id, unix.SIGCONT)
	return d.wrap("thaw", id, err)
}

func (d *Driver[S]) signal(id string, sig unix.Signal) (pids []int, err error) {
	s, err := d.Find(id)
	if err != nil {
		return nil, err
	}
	return s.Signal(sig)
}

// Kill implements sandbox.Freezer.
func (d *Driver[S]) Kill(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	s, err := d.Find(id)
	if err == nil {
		err = s.Kill(ctx)
	}
	if err == nil {
		err = awaitEnd(ctx, s)
	}
	if err == nil {
		err = s.Free()
	}
	return d.wrap("kill", id, err)
}

// awaitEnd returns when the processes of a killed sandbox have released their memory and files:
// a cgroup does not list a process any more while it exits.
func awaitEnd(ctx context.Context, s Sandbox) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		alive, err := s.Alive()
		if err != nil || !alive {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for processes to exit: %w", context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// End kills the processes of a sandbox, even if ctx has ended.
func End(ctx context.Context, s Sandbox) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return s.Kill(ctx)
}

// Destroy implements sandbox.Driver. It removes the directory last: while anything is left, Dir
// lists the sandbox. It needs neither intact files nor the cooperation of a process.
func (d *Driver[S]) Destroy(ctx context.Context, id string) error {
	dir, err := d.Dir.Path(id)
	if err != nil {
		return fmt.Errorf("%s: destroy: %w", d.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if err := destroy(ctx, d.New(id, dir), dir); err != nil {
		return d.wrap("destroy", id, err)
	}
	d.Processes.Forget(id)
	return nil
}

func destroy(ctx context.Context, s Sandbox, dir string) error {
	if err := s.Kill(ctx); err != nil {
		return err
	}
	if err := s.Remove(ctx); err != nil {
		return err
	}
	// Without the key, the blocks that the removal frees cannot be decrypted.
	if err := Unseal(ctx, filepath.Join(dir, Sealed)); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
