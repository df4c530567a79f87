// Command berth-guest is the program inside every sandbox, its PID 1. It listens on a socket, or on
// serial lines in a virtual machine that it has booted; package guest/server defines what it serves.
// If the socket cannot be reached from outside, "berth-guest dial SOCKET [EPOCH]", started in the
// sandbox, carries a connection over its standard streams. "berth-guest route" tests whether a sandbox can have
// a route for addresses, "berth-guest filtered" whether its system calls are filtered, and
// "berth-guest unreachable TIME ADDRESS…" whether it is cut off from them. "berth-guest usage" prints
// the container's resource use. "berth-guest edit" is the text editor of models (package guest/editor).
// "berth-guest sftp" serves SFTP on its standard streams, and "berth-guest listen PORT" carries connections to a port
// over them (packages guest/sftp and guest/listener), for clients of SSH.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/guest/boot"
	"github.com/berth-run/berth/guest/editor"
	"github.com/berth-run/berth/guest/listener"
	"github.com/berth-run/berth/guest/route"
	"github.com/berth-run/berth/guest/serial"
	"github.com/berth-run/berth/guest/server"
	"github.com/berth-run/berth/guest/sftp"
)

func main() {
	if boot.Called() {
		boot.Main()
	}
	if os.Getenv(filterEnv) != "" {
		fmt.Fprintln(os.Stderr, "berth-guest:", filter())
		os.Exit(1)
	}
	work := run
	switch {
	case len(os.Args) == 3 && os.Args[1] == "dial":
		work = func() error { return dial(os.Args[2], "", os.Stdin, os.Stdout) }
	case len(os.Args) == 4 && os.Args[1] == "dial":
		work = func() error { return dial(os.Args[2], os.Args[3], os.Stdin, os.Stdout) }
	case len(os.Args) == 2 && os.Args[1] == "route":
		work = func() error {
			_, err := route.Open(route.Out{})
			return err
		}
	case len(os.Args) == 2 && os.Args[1] == "filtered":
		work = filtered
	case len(os.Args) > 3 && os.Args[1] == "unreachable":
		work = func() error { return unreachable(os.Args[2], os.Args[3:]) }
	case len(os.Args) == 2 && os.Args[1] == "usage":
		work = func() error { return writeUsage(os.Stdout, cgroupDir) }
	case len(os.Args) == 2 && os.Args[1] == "sftp":
		work = sftp.Serve
	case len(os.Args) == 3 && os.Args[1] == "listen":
		work = func() error { return listener.Serve(os.Args[2], os.Stdin, os.Stdout) }
	case len(os.Args) == 2 && os.Args[1] == "edit":
		if err := editor.Run(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			os.Exit(1)
		}
		return
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "berth-guest:", err)
		os.Exit(1)
	}
}

func run() error {
	socket := flag.String("socket", os.Getenv("BERTH_GUEST_SOCKET"), "Unix socket to listen on")
	user := flag.String("user", os.Getenv("BERTH_USER"), "user that commands run as")
	workdir := flag.String("workdir", os.Getenv("BERTH_WORKDIR"), "directory in which commands start")
	state := flag.String("state", os.Getenv("BERTH_STATE_DIR"), "directory for shell state and output")
	memory := flag.Int64("memory-limit", number("BERTH_MEMORY_LIMIT"), "memory limit of all processes, in bytes")
	pids := flag.Int64("pids-limit", number("BERTH_PIDS_LIMIT"), "maximum number of processes")
	watch := flag.Bool("watch", number("BERTH_WATCH") != 0,
		"track changes below the working directory with the kernel, which must belong to the sandbox alone")
	epochs := flag.Bool("epochs", number("BERTH_EPOCHS") != 0,
		"connections begin with an epoch, because several servers can reach the sandbox")
	log := flag.String("log", os.Getenv("BERTH_GUEST_LOG"),
		"file that replaces the standard streams once the guest listens")
	created := flag.Int64("created", number("BERTH_CREATED"),
		"Unix time before which nothing was written above the template; 0 if unknown")
	threads := flag.Int64("threads", number("BERTH_THREADS"),
		"threads to create at start, in case the process limit prevents it later")
	flag.Parse()
	ports := int(number(boot.PortsEnv))
	if *socket == "" && ports <= 0 {
		return fmt.Errorf("set --socket or BERTH_GUEST_SOCKET")
	}
	// The sandbox's limits include the guest: prefer frequent collections to a larger heap.
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(32 << 20)
	reserveThreads(int(*threads))
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	if os.Getpid() == 1 {
		catchSignals()
		ctx = context.Background()
	} else {
		catchIgnored()
	}
	s, err := server.New(server.Options{User: *user, WorkDir: *workdir, StateDir: *state, MemoryLimit: *memory,
		PIDsLimit: int(*pids), Watch: *watch, Epochs: *epochs, Created: unixTime(*created),
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	l, err := listen(*socket, ports)
	if err != nil {
		return err
	}
	if *log != "" {
		if err := redirect(*log); err != nil {
			return err
		}
	}
	return s.Serve(ctx, l)
}

// reserveThreads creates n threads, which the runtime keeps for reuse. Without them, a sandbox full of
// processes could prevent a new thread, which ends the program.
func reserveThreads(n int) {
	var made sync.WaitGroup
	release := make(chan struct{})
	made.Add(n)
	for range n {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			made.Done()
			<-release
		}()
	}
	made.Wait()
	close(release)
}

// redirect replaces standard output and error by a file. Otherwise root in a sandbox could write to
// their reader without limit, through /proc/1/fd.
func redirect(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, std := range []*os.File{os.Stdout, os.Stderr} {
		if err := unix.Dup3(int(f.Fd()), int(std.Fd()), 0); err != nil {
			return err
		}
	}
	return nil
}

// listen listens on serial lines, or on a Unix socket if ports is 0.
func listen(socket string, ports int) (net.Listener, error) {
	if ports > 0 {
		lines, err := serial.Open(boot.FirstPort, ports)
		if err != nil {
			return nil, err
		}
		return serial.Listen(lines, boot.SetClock), nil
	}
	_ = os.Remove(socket) // left by a previous run
	return net.Listen("unix", socket)
}

func number(env string) int64 {
	n, _ := strconv.ParseInt(os.Getenv(env), 10, 64)
	return n
}

// unixTime returns a Unix time, and no time for 0.
func unixTime(sec int64) time.Time {
	if sec == 0 {
		return time.Time{}
	}
	return time.Unix(sec, 0)
}
