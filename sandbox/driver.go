// Package sandbox defines what an isolation technology must do to run sandboxes.
//
// A driver only makes, reaches and unmakes sandboxes. Running commands, moving
// files and reaching ports go through the guest program inside (package guest),
// so they are written once and behave alike under every driver. The suite in
// package drivertest is the contract in executable form.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// idPattern is what a Spec's ID must match.
var idPattern = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

// ErrNotFound is returned (wrapped or not) for an id that the driver does not know.
var ErrNotFound = errors.New("sandbox not found")

// A Driver runs sandboxes with one isolation technology.
//
// Sandboxes outlive the process that made them: a Driver opened on the same
// state directory finds them again through List and may Dial them. Methods are
// safe for concurrent use; calls about one id are serialised by the caller.
// Drivers return raw errors and do not retry. One whose sandboxes write to a volume that the
// server watches also implements Freezer.
//
// To add a driver:
//  1. implement Driver in a package beside gvisor;
//  2. run drivertest.Run from its test;
//  3. name it in cmd/berth's driver table and in `berth doctor`.
type Driver interface {
	// Create prepares a sandbox: name, limits, file system. Nothing of the
	// sandbox's own runs yet. On error nothing is left behind.
	Create(ctx context.Context, spec Spec) error

	// Start starts the guest in a created sandbox. It returns when the guest
	// may be dialled, not when it answers.
	Start(ctx context.Context, id string) error

	// Dial connects to the guest's socket. Each call is a new connection; the
	// caller closes it. The other end is in the sandbox and is not trusted.
	Dial(ctx context.Context, id string) (net.Conn, error)

	// Stats reports the state and the resource use of the sandbox. It returns StateDead or
	// ErrNotFound only with proof, because the caller then removes the sandbox. If the state
	// cannot be read, for lack of descriptors or memory for example, it returns another error.
	Stats(ctx context.Context, id string) (Stats, error)

	// Pause stops every process of the sandbox; Resume continues them.
	// A driver without Features().Pause returns errors.ErrUnsupported.
	Pause(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error

	// Destroy ends the sandbox and removes everything that it wrote. It is
	// idempotent: destroying an unknown id is not an error.
	Destroy(ctx context.Context, id string) error

	// List returns the ids of all sandboxes that exist, alive or dead.
	List(ctx context.Context) ([]string, error)

	// Features returns what this driver can do on this machine. It is constant.
	Features() Features
}

// A Spec describes a sandbox to create. It holds no secret.
type Spec struct {
	// ID names the sandbox: [a-z0-9_-]{1,64}, unique within the driver.
	ID string

	// Template is what the sandbox's root file system starts as. A driver whose
	// Features().Isolation is "none" ignores it.
	Template Template

	// Env is the guest's environment, KEY=value.
	Env []string

	Limits Limits

	// Mounts are volumes that the sandbox shares. A driver without Features().Mounts
	// returns errors.ErrUnsupported if there are any.
	Mounts []Mount
}

// A Template names a root file system that many sandboxes share and none writes.
type Template struct {
	// Digest identifies the content: sha256:HEX.
	Digest string

	// Ref is the name under which the server has the template, for messages and for
	// drivers that fetch it by name. It is empty if the template has none.
	Ref string

	// Path is the directory of the root file system on the server's host. It is a hint
	// for drivers that run sandboxes on the same host; others fetch the template by
	// Digest or Ref.
	Path string
}

// Directory returns Path. It returns an error unless that is the absolute path of a
// directory on this host.
func (t Template) Directory() (string, error) {
	if fi, err := os.Stat(t.Path); err != nil || !fi.IsDir() || !filepath.IsAbs(t.Path) {
		return "", fmt.Errorf("template %s: its root file system %q is not an absolute path of a directory", cmp.Or(t.Ref, t.Digest, "without a name"), t.Path)
	}
	return t.Path, nil
}

// MountRoot is the directory of a sandbox in which mounts are.
const MountRoot = "/mnt/volumes"

// A Mount shows a volume in a sandbox. What the sandbox writes there is hostile:
// names, links, modes and owners are its own.
type Mount struct {
	Name     string // of the directory below MountRoot: [a-z0-9][a-z0-9_-]{0,62}
	Volume   string // the id of the volume
	ReadOnly bool

	// Path is the absolute path of the volume's directory on the server's host. It is
	// a hint for drivers that run sandboxes on the same host.
	Path string
}

var mountName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// CheckMounts checks mounts for a driver on the server's host. It returns an error
// unless all names are valid and differ, and all paths are those of directories.
func CheckMounts(mounts []Mount) error {
	seen := map[string]bool{}
	for _, m := range mounts {
		if !mountName.MatchString(m.Name) || seen[m.Name] {
			return fmt.Errorf("mount %q: the name does not match %s, or is there twice", m.Name, mountName)
		}
		seen[m.Name] = true
		if fi, err := os.Stat(m.Path); err != nil || !fi.IsDir() || !filepath.IsAbs(m.Path) {
			return fmt.Errorf("mount %q: the path %q of volume %q is not an absolute path of a directory", m.Name, m.Path, m.Volume)
		}
	}
	return nil
}

// CheckID returns an error unless id may name a sandbox. An id that passes is
// safe as a file name.
func CheckID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("sandbox id %q does not match %s", id, idPattern)
	}
	return nil
}

// Limits bound what one sandbox may use. Zero means DefaultLimits, never
// "unlimited".
type Limits struct {
	Memory int64   // bytes, of all processes and of the driver's own overhead
	CPU    float64 // cores
	PIDs   int     // processes and threads
	Disk   int64   // bytes written above the template
}

// DefaultLimits hold where a Spec says nothing. The memory is the smallest tier
// of the containers API.
var DefaultLimits = Limits{Memory: 1 << 30, CPU: 2, PIDs: 512, Disk: 10 << 30}

// WithDefaults returns l with DefaultLimits in the place of what is not set.
func (l Limits) WithDefaults() Limits {
	if l.Memory <= 0 {
		l.Memory = DefaultLimits.Memory
	}
	if l.CPU <= 0 {
		l.CPU = DefaultLimits.CPU
	}
	if l.PIDs <= 0 {
		l.PIDs = DefaultLimits.PIDs
	}
	if l.Disk <= 0 {
		l.Disk = DefaultLimits.Disk
	}
	return l
}

// State is what a sandbox is doing.
type State string

const (
	StateCreated State = "created"
	StateRunning State = "running"
	StatePaused  State = "paused"
	StateDead    State = "dead"
)

// Reason says why a sandbox is dead. It is empty while it is not.
type Reason string

const (
	ReasonOOM    Reason = "oom"    // its memory limit was reached
	ReasonKilled Reason = "killed" // it ended, or something ended it
	ReasonHost   Reason = "host"   // the machine restarted under it
)

// Stats is one reading of a sandbox. Figures a driver cannot read are zero.
type Stats struct {
	State  State
	Reason Reason

	CPU    time.Duration // processor time used since the start
	Memory int64         // bytes in use
	// MemoryPeak is the most that Memory was, with page cache, since the start.
	MemoryPeak int64
	PIDs       int   // host processes and threads
	Disk       int64 // bytes written above the template
}

// Features declares the nature of a driver, so that what is missing is known
// at start-up and not in the middle of a task.
type Features struct {
	// Isolation is the word that the containers API reports: "gvisor",
	// "microvm", "docker", "kubernetes" or "none".
	Isolation string

	Pause       bool // Pause and Resume work
	MemoryLimit bool // Limits.Memory is enforced
	CPULimit    bool // Limits.CPU is enforced
	PIDLimit    bool // Limits.PIDs is enforced
	DiskLimit   bool // Limits.Disk is enforced
	LimitsShown bool // /proc/meminfo shows Limits.Memory, and not the machine's
	Mounts      bool // Spec.Mounts works
	Erases      bool // what a sandbox wrote cannot be read after Destroy, not even from the raw volume
	Network     bool // the sandbox sees a network other than its own loopback
	Routes      bool // the guest can make a route for addresses: it has CAP_NET_ADMIN and /dev/net/tun

	// OwnKernel: each sandbox is a machine. Its processes are not the host's and
	// are not in Stats.PIDs, Limits.Memory is the machine's, and its kernel
	// takes a part of it, and Stats.Memory has what runs the machine on top.
	OwnKernel bool

	// Slowness is how many times longer the same takes than on the host, where that
	// is much; 0 says that it is not.
	Slowness float64
}
