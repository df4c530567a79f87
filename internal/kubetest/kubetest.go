// Package kubetest runs a Kubernetes cluster for tests: etcd, API server, controller manager,
// scheduler and kubelet, unmodified, with Debian's containerd, runc and network plugins. It has
// one node; AddNode adds another one in namespaces of its own.
//
// The tests run in network, mount and process namespaces of their own, with the cluster: its
// addresses, mounts and firewall rules are not the machine's, and all ends with the tests. The
// machine's kernel and control groups are shared.
package kubetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// ProgramEnv names the program of module e2e/testdata/cluster, which "make test-cluster" builds. Without it
// the tests are skipped.
const ProgramEnv = "BERTH_TEST_CLUSTER"

// Values of roleEnv.
const (
	roleEnv  = "BERTH_KUBETEST_ROLE"
	roleInit = "init" // the first process of the namespaces
	roleTest = "test" // the tests
	roleNode = "node" // the first process of another node's namespaces
)

// Main runs the tests of a package that calls Start, ends the cluster and exits. Call it from
// TestMain.
func Main(m *testing.M) { Run(m.Run) }

// Run is Main for a package whose TestMain does more: run runs the tests.
func Run(run func() (code int)) {
	if os.Getenv(ProgramEnv) == "" {
		os.Exit(run())
	}
	code, err := 1, error(nil)
	switch os.Getenv(roleEnv) {
	case "":
		code, err = enter()
	case roleInit:
		code, err = initialize()
	case roleNode:
		code, err = runNode()
	default:
		code = run()
		err = stopShared()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubetest:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// command returns this program again, with another role.
func command(role string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

// enter runs the tests in new namespaces. They end with this process.
func enter() (code int, err error) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return 1, errors.New("only root on Linux can run a cluster")
	}
	if err := makeCgroups(); err != nil {
		return 1, err
	}
	runtime.LockOSThread() // Pdeathsig refers to the thread that starts the process
	cmd := command(roleInit)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID |
		unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig: unix.SIGKILL}
	err = cmd.Run()
	err = errors.Join(exitCode(err, &code), removeCgroups())
	return code, err
}

// exitCode stores the exit code of a process that ran, and returns any other error.
func exitCode(err error, code *int) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		*code = max(exit.ExitCode(), 1)
		return nil
	}
	if err != nil {
		*code = 1
	}
	return err
}

// initialize prepares the namespaces, runs the tests, and reaps orphans until they end.
func initialize() (code int, err error) {
	if err := prepare(); err != nil {
		return 1, err
	}
	cmd := command(roleTest)
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start the tests: %w", err)
	}
	return reap(cmd.Process.Pid)
}

// reap reaps orphans until one of the processes ends, and returns its exit code.
func reap(pids ...int) (code int, err error) {
	for {
		var st unix.WaitStatus
		pid, err := unix.Wait4(-1, &st, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 1, fmt.Errorf("wait for a process: %w", err)
		}
		if !slices.Contains(pids, pid) {
			continue
		}
		if st.Signaled() {
			return 128 + int(st.Signal()), nil
		}
		return st.ExitStatus(), nil
	}
}

// settings are kernel settings of the machine that a kubelet would change.
var settings = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}

// prepare makes the mounts and interfaces of the namespaces.
func prepare() error {
	if err := prepareMounts(nodeName); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "add", "node", "type", "veth", "peer", "name", "wire"},
		{"ip", "address", "add", nodeIP + "/24", "dev", "node"},
		{"ip", "link", "set", "node", "up"},
		{"ip", "link", "set", "wire", "up"},
		{"ip", "route", "add", "default", "dev", "node"},
		{"sysctl", "-q", "-w", "net.ipv4.ip_forward=1"},
	} {
		if err := call(args...); err != nil {
			return err
		}
	}
	return Isolate(true)
}

// call runs a program.
func call(args ...string) error {
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return nil
}

// prepareMounts makes the mounts of a node's namespaces, and sets its host name.
func prepareMounts(host string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, m := range []struct{ kind, to string }{{"proc", "/proc"}, {"tmpfs", "/run"}, {"tmpfs", "/var/log"}} {
		if err := unix.Mount(m.kind, m.to, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.to, err)
		}
	}
	for i, s := range settings {
		raw, err := os.ReadFile("/proc/sys/" + s)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		own := fmt.Sprintf("/run/setting-%d", i)
		if err := os.WriteFile(own, raw, 0o600); err != nil {
			return err
		}
		if err := unix.Mount(own, "/proc/sys/"+s, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("hide %s: %w", s, err)
		}
	}
	// The kubelet wants mounts to be shared with its Pods.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}
	if err := unix.Sethostname([]byte(host)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	return nil
}

// Isolate makes the node reject all traffic of Pods, as a network that enforces policies does for
// Pods to which nothing is permitted, or stops that.
func Isolate(on bool) error {
	what := "-A"
	if !on {
		what = "-D"
	}
	for _, chain := range []string{"INPUT", "FORWARD"} {
		if err := call("iptables", "-w", what, chain, "-s", podNet, "-j", "REJECT"); err != nil {
			return err
		}
	}
	return nil
}
