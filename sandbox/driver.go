// Package sandbox defines the interface of isolation technologies.
//
// A driver only creates, connects to and destroys sandboxes. Commands, files and ports go
// through the guest program inside (package guest), so they are written once and behave alike
// under every driver. The suite in package drivertest is the executable contract.
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

// idPattern matches valid values of Spec.ID.
var idPattern = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

// ErrNotFound is returned (wrapped or not) for an id that the driver does not know.
var ErrNotFound = errors.New("sandbox not found")

// ErrClaimed is returned (wrapped or not) for a sandbox that another server has claimed.
var ErrClaimed = errors.New("another server has claimed the sandbox")

// A Claimer is a Driver of one of several servers. Each can take over the sandboxes of the
// others. A sandbox belongs to the server that created it, until another one claims it. For all other
// servers it does not exist: List does not return it, and Destroy leaves it alone.
type Claimer interface {
	Driver

	// Claim takes over a sandbox. From then on no connection of a server that claimed it with a
	// lower epoch has an effect. The epoch of a new sandbox is 0. Repeating a claim is no error.
	// It returns ErrClaimed if the last epoch is as high, and ErrNotFound if there is no such
	// sandbox.
	Claim(ctx context.Context, id string, epoch int64) error

	// Claimed returns the server of each sandbox of all servers, by the sandbox's id.
	Claimed(ctx context.Context) (map[string]string, error)
}

// A Driver runs sandboxes with one isolation technology.
//
// Sandboxes outlive the process that created them: a Driver opened on the same state directory
// finds them again through List and may Dial them. Methods are safe for concurrent use; the
// caller serializes calls about one id. Drivers return raw errors and do not retry. A driver
// whose sandboxes write to a volume that the server watches also implements Freezer.
//
// To add a driver:
//  1. implement Driver in a package beside gvisor;
//  2. run drivertest.Run from its test;
//  3. name it in server's driver table and in `berth doctor`.
type Driver interface {
	// Create prepares a sandbox: name, limits, file system. None of its processes runs yet.
	// After an error nothing is left behind.
	Create(ctx context.Context, spec Spec) error

	// Start starts the guest in a created sandbox. It returns when Dial may be called, not when
	// the guest answers.
	Start(ctx context.Context, id string) error

	// Dial connects to the guest's socket. Each call makes a new connection; the caller closes
	// it. The other end is in the sandbox and is not trusted.
	Dial(ctx context.Context, id string) (net.Conn, error)

	// Stats reports the state and the resource use of the sandbox. It returns StateDead or
	// ErrNotFound only with proof, because the caller then removes the sandbox. If the state
	// cannot be read, for lack of descriptors or memory for example, it returns another error.
	Stats(ctx context.Context, id string) (Stats, error)

	// Pause stops every process of the sandbox; Resume continues them. A driver without
	// Features().Pause returns errors.ErrUnsupported.
	Pause(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error

	// Destroy ends the sandbox and removes everything that it wrote. It is idempotent:
	// destroying an unknown id is not an error.
	Destroy(ctx context.Context, id string) error

	// List returns the ids of all sandboxes that exist, alive or dead.
	List(ctx context.Context) ([]string, error)

	// Features returns the capabilities of this driver on this machine. They are constant.
	Features() Features
}

// A Spec describes a sandbox to create. It contains no secret.
type Spec struct {
	// ID names the sandbox: [a-z0-9_-]{1,64}, unique within the driver.
	ID string

	// Template is the initial root file system of the sandbox. A driver whose
	// Features().Isolation is "none" ignores it.
	Template Template

	// Env is the guest's environment, KEY=value.
	Env []string

	Limits Limits

	// Mounts are volumes in the sandbox. A driver without Features().Mounts returns
	// errors.ErrUnsupported if there are any.
	Mounts []Mount
}

// A Template names a root file system that many sandboxes share and none changes.
type Template struct {
	// Digest identifies the content: sha256:HEX. It may be empty.
	Digest string

	// Ref is the server's name of the template, for messages and for drivers that fetch it by
	// name. It is empty if the template has no name.
	Ref string

	// Path is the directory of the root file system on the server's host. It is a hint
	// for drivers that run sandboxes on the same host; others fetch the template by
	// Digest or Ref.
	Path string
}

// Directory returns Path. It returns an error unless Path is the absolute path of a directory
// on this host.
func (t Template) Directory() (string, error) {
	if fi, err := os.Stat(t.Path); err != nil || !fi.IsDir() || !filepath.IsAbs(t.Path) {
		return "", fmt.Errorf("template %s: root file system %q is not an absolute path of a directory",
			cmp.Or(t.Ref, t.Digest, "without a name"), t.Path)
	}
	return t.Path, nil
}

// MountRoot is the directory of mounts in a sandbox.
const MountRoot = "/mnt/volumes"

// A Mount makes a volume visible in a sandbox. Its content is hostile: the sandbox chooses
// names, links, modes and owners.
type Mount struct {
	Name     string // of the directory below MountRoot: [a-z0-9][a-z0-9_-]{0,62}
	Volume   string // the id of the volume
	ReadOnly bool

	// Path is the absolute path of the volume's directory on the server's host. It is
	// a hint for drivers that run sandboxes on the same host.
	Path string
}

var mountName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// CheckMounts validates mounts for a driver on the server's host. It returns an error unless
// all names are valid and distinct, and all paths are those of directories.
func CheckMounts(mounts []Mount) error {
	seen := map[string]bool{}
	for _, m := range mounts {
		if !mountName.MatchString(m.Name) || seen[m.Name] {
			return fmt.Errorf("mount %q: the name does not match %s, or is not unique", m.Name, mountName)
		}
		seen[m.Name] = true
		if fi, err := os.Stat(m.Path); err != nil || !fi.IsDir() || !filepath.IsAbs(m.Path) {
			return fmt.Errorf("mount %q: the path %q of volume %q is not an absolute path of a directory", m.Name,
				m.Path, m.Volume)
		}
	}
	return nil
}

// CheckID returns an error unless id is valid. A valid id is safe as a file name.
func CheckID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("sandbox id %q does not match %s", id, idPattern)
	}
	return nil
}

// Limits bound the resources of one sandbox. Zero means the value in DefaultLimits, never
// "unlimited".
type Limits struct {
	Memory int64   // bytes, of all processes and of the driver's own overhead
	CPU    float64 // cores
	PIDs   int     // processes and threads
	Disk   int64   // bytes written above the template
}

// DefaultLimits replace zero values in a Spec. The memory is the smallest tier of the
// containers API.
var DefaultLimits = Limits{Memory: 1 << 30, CPU: 2, PIDs: 512, Disk: 10 << 30}

// WithDefaults returns l with DefaultLimits in place of zero values.
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

// State is the state of a sandbox.
type State string

const (
	StateCreated State = "created"
	StateRunning State = "running"
	StatePaused  State = "paused"
	StateDead    State = "dead"
)

// Reason is why a sandbox is dead. It is empty while it is alive.
type Reason string

const (
	ReasonOOM    Reason = "oom"    // its memory limit was reached
	ReasonKilled Reason = "killed" // it ended on its own or was killed
	ReasonHost   Reason = "host"   // the machine was restarted or lost

	// ReasonEvicted: the cluster ended it, to free resources of its machine, or because it wrote
	// more than its disk limit.
	ReasonEvicted Reason = "evicted"
)

// Stats are a reading of a sandbox. Figures that a driver cannot read are zero.
type Stats struct {
	State  State
	Reason Reason
	Detail string // what else the driver knows about the end, in words; the sandbox may have written a part

	CPU    time.Duration // CPU time used since the start
	Memory int64         // bytes in use
	// MemoryPeak is the maximum of Memory, with page cache, since the start.
	MemoryPeak int64
	PIDs       int   // host processes and threads
	Disk       int64 // bytes written above the template

	// Pressure is the share of the last ten seconds in which some process of the sandbox waited
	// for a CPU, 0 to 1. It is nil if the driver cannot read it.
	Pressure *float64
}

// Features declares the capabilities of a driver, so that missing ones are known at start-up
// and not during a task.
type Features struct {
	// Isolation is the value that the containers API reports: "gvisor", "microvm", "docker",
	// "kubernetes" or "none".
	Isolation string

	Pause       bool // Pause and Resume work
	MemoryLimit bool // Limits.Memory is enforced
	CPULimit    bool // Limits.CPU is enforced
	PIDLimit    bool // Limits.PIDs is enforced
	DiskLimit   bool // Limits.Disk is enforced
	LimitsShown bool // /proc/meminfo shows Limits.Memory, and not the machine's
	Mounts      bool // Spec.Mounts works
	Erases      bool // data that a sandbox wrote cannot be read after Destroy, even from the raw volume
	Network     bool // the sandbox sees a network other than its own loopback
	Routes      bool // the guest can create a route for addresses: it has CAP_NET_ADMIN and /dev/net/tun
	NoRoot      bool // no program in a sandbox can become root: sudo does not work

	// OwnKernel means that each sandbox is a virtual machine. Its processes are not the host's
	// and are not in Stats.PIDs. Limits.Memory is the machine's memory, with what its
	// kernel takes, and Stats.Memory includes the program that runs the machine.
	OwnKernel bool

	// Slowness is the factor by which programs take longer than on the host, if that is much; 0
	// means that it is not.
	Slowness float64
}
