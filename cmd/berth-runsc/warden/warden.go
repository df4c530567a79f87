// Package warden is the first process of a sandbox whose owner is an ordinary user.
//
// It does for ordinary users what cgroups do for root. It is the init of a process namespace, so that its
// end ends all processes. It sets up what only the owner of a user namespace can, starts runsc, drops its
// capabilities, ends the sandbox when it reaches its memory limit, and serves requests of the server,
// which runs outside and may restart. It uses these files in its working directory:
//
//	warden.lock   locked (fcntl) while it lives; querying the lock returns its process id
//	warden.sock   its socket, one Request per connection
//	run/          a small tmpfs, only in its mount namespace
//	pid           the sentry's process id in its namespace, written by runsc
//	end.json      an End, written when the sandbox ended without being killed from outside
package warden

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command is the argument that makes the program run as a warden.
const Command = "warden"

// An End records how a sandbox ended.
type End struct {
	Usage
	OOM   bool   `json:"oom"`   // it reached its memory limit
	Words string `json:"words"` // the ends of its logs
}

// Files in the working directory.
const (
	lockName   = "warden.lock"
	socketName = "warden.sock"
	endName    = "end.json"
	pidName    = "pid"
	runDir     = "run"
	wakeName   = runDir + "/guest/wake" // makes the guest listen again
)

// runOptions bounds the tmpfs that holds the guest's socket and the logs.
const runOptions = "mode=0700,size=4m,nr_inodes=64"

// Main runs a warden until its sandbox ends. The arguments after the flags are runsc's, which must start
// the sandbox and return.
func Main(args []string) int {
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	memory := flags.Int64("memory", 0, "bytes of memory that the sandbox may use")
	pids := flags.Uint64("pids", 0, "processes and threads that it may have")
	wake := flags.Bool("wake", false, "wake a sleeping guest, so that it listens")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	unix.CloseOnExec(tellFD)
	unix.CloseOnExec(programFD)
	tell := os.NewFile(tellFD, "tell")
	lock, err := takeLock()
	if err == nil {
		defer lock.Close()
		err = enclose(*pids)
	}
	if err == nil && *wake {
		err = os.WriteFile(wakeName, nil, 0o600)
	}
	if err == nil {
		err = guard(flags.Args(), *memory, tell)
	}
	if err != nil {
		fmt.Fprint(tell, err)
		return 1
	}
	return 0
}

// Descriptors inherited from the server.
const (
	tellFD    = 3 // receives "started" or an error
	programFD = 4 // this program
)

func takeLock() (*os.File, error) {
	f, err := os.OpenFile(lockName, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", lockName, err)
	}
	return f, nil
}

// enclose sets up the namespaces for the sandbox.
func enclose(pids uint64) error {
	// A process limit counts the user's processes, here and in the namespaces above. The limit
	// of a namespace's creator applies to all processes in it; a child creates the sentry's.
	for resource, limit := range map[int]uint64{unix.RLIMIT_NPROC: pids, unix.RLIMIT_CORE: 0} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("setrlimit: %w", err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("proc", "/proc", "proc", flags, ""); err != nil {
		return fmt.Errorf("mounting /proc: in some containers a part of it is hidden, which the kernel refuses: %w",
			err)
	}
	if err := unix.Mount("berth", runDir, "tmpfs", flags, runOptions); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	for _, sub := range []string{"/guest", "/log"} {
		if err := os.Mkdir(runDir+sub, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// guard starts the sandbox and returns when it ends.
func guard(args []string, memory int64, tell *os.File) error {
	socket, err := net.Listen("unix", socketName)
	if err != nil {
		return err
	}
	defer socket.Close()
	err = start(args)
	w := &watch{limit: memory}
	if err == nil {
		err = w.find()
	}
	if err != nil {
		return errors.Join(err, errors.New(lastWords()))
	}
	if err := dropPowers(); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	go answer(socket, w)
	if _, err := tell.WriteString("started"); err != nil {
		return err // the server does not know of the sandbox
	}
	tell.Close()
	w.run()
	end := End{Usage: w.usage(), OOM: w.oom.Load(), Words: lastWords()}
	raw, err := json.Marshal(end)
	if err != nil {
		return err
	}
	if err := os.WriteFile(endName+".tmp", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(endName+".tmp", endName)
}

// highFD is the first descriptor number that the sentry uses for itself. Opening it in runsc saves the
// sentry from growing its descriptor table, which would wait for the kernel.
const highFD = 256

// start runs runsc.
func start(args []string) error {
	log, err := os.OpenFile(runDir+"/log/runsc.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = make([]*os.File, highFD-2)
	cmd.ExtraFiles[highFD-3] = null
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("runsc: %w", err)
	}
	return nil
}

// sentry returns the sentry's process id.
func sentry() (int, error) {
	raw, err := os.ReadFile(pidName)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(raw)))
}

// dropPowers drops all capabilities of all threads permanently. As the creator of the sentry's namespace,
// this process still has them there.
func dropPowers() error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); errno != 0 &&
			errno != unix.EINVAL {
			return errno
		}
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return capset()
}
