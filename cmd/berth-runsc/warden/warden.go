// Package warden is the first process of a sandbox whose owner is an ordinary user.
//
// Where root has cgroups, it has this process, the init of a process namespace: what
// ends it ends all. It makes what only the owner of a user namespace can, starts
// runsc, gives up its capabilities, ends the sandbox when its memory limit is reached,
// and answers questions of the server, which is outside and may come and go. In the
// directory that it is started in it finds and leaves
//
//	warden.lock   locked (fcntl) as long as it lives; whoever asks learns its process id
//	warden.sock   where it answers, one Request for each connection
//	run/          a small tmpfs, in its mount namespace only
//	pid           the sentry's process id in its namespace, by runsc
//	end.json      an End, when it ended by itself
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

// Command is the argument that tells the program to be a warden.
const Command = "warden"

// An End is what remains of a sandbox.
type End struct {
	Usage
	OOM   bool   `json:"oom"`   // its memory limit was reached
	Words string `json:"words"` // the ends of its logs
}

// Names in the directory.
const (
	lockName   = "warden.lock"
	socketName = "warden.sock"
	endName    = "end.json"
	pidName    = "pid"
	runDir     = "run"
	wakeName   = runDir + "/guest/wake" // tells the guest to listen again
)

// runOptions bound the tmpfs that holds the guest's socket and the logs.
const runOptions = "mode=0700,size=4m,nr_inodes=64"

// Main is the program, until the sandbox ends. The arguments after the flags are
// runsc's, which is to start the sandbox and return.
func Main(args []string) int {
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	memory := flags.Int64("memory", 0, "bytes of memory that the sandbox may use")
	pids := flags.Uint64("pids", 0, "processes and threads that it may have")
	wake := flags.Bool("wake", false, "tell a guest that sleeps to listen")
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

// Descriptors that the server hands over.
const (
	tellFD    = 3 // on which it hears "started" or what went wrong
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

// enclose makes the namespaces what the sandbox needs them to be.
func enclose(pids uint64) error {
	// A limit of processes counts the user's, here and in the namespaces above. That
	// of a namespace's maker holds for all in it: the sentry's is made by a child.
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
		return fmt.Errorf("mounting /proc, of which no part may be hidden here, as it is in some containers: %w", err)
	}
	if err := unix.Mount("berth", runDir, "tmpfs", flags, runOptions); err != nil {
		return fmt.Errorf("mounting tmpfs: %w", err)
	}
	for _, sub := range []string{"/guest", "/log"} {
		if err := os.Mkdir(runDir+sub, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// guard starts the sandbox and stays until it ends.
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
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	go answer(socket, w)
	if _, err := tell.WriteString("started"); err != nil {
		return err // nobody knows of the sandbox
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

// highFD is the first descriptor number that the sentry uses for itself: one that is
// open in runsc spares the sentry to grow its table, for which the kernel waits.
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

// dropPowers gives up all capabilities, in all threads and for good. Towards the
// sentry's namespace this process has them still, as the one who made it.
func dropPowers() error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); errno != 0 && errno != unix.EINVAL {
			return errno
		}
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return capset()
}
