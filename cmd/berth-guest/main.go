// Command berth-guest is the program inside every sandbox, its PID 1. It listens
// on one socket for its keeper, or on serial lines where the sandbox is a machine
// that it has booted before; package guest/server says what it does. Where a socket
// cannot be reached from outside, berth-guest dial SOCKET, started beside it, carries
// a connection over its standard streams. berth-guest route tries whether a sandbox
// can have a route for addresses, berth-guest filtered whether its system calls are filtered.
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
	"github.com/berth-run/berth/guest/route"
	"github.com/berth-run/berth/guest/serial"
	"github.com/berth-run/berth/guest/server"
)

func main() {
	if boot.Called() {
		boot.Main()
	}
	work := run
	switch {
	case len(os.Args) == 3 && os.Args[1] == "dial":
		work = func() error { return dial(os.Args[2], os.Stdin, os.Stdout) }
	case len(os.Args) == 2 && os.Args[1] == "route":
		work = func() error {
			_, err := route.Open(route.Out{})
			return err
		}
	case len(os.Args) == 2 && os.Args[1] == "filtered":
		work = filtered
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "berth-guest:", err)
		os.Exit(1)
	}
}

func run() error {
	socket := flag.String("socket", os.Getenv("BERTH_GUEST_SOCKET"), "Unix socket to listen on")
	user := flag.String("user", os.Getenv("BERTH_USER"), "who commands run as")
	workdir := flag.String("workdir", os.Getenv("BERTH_WORKDIR"), "where commands start")
	state := flag.String("state", os.Getenv("BERTH_STATE_DIR"), "directory for shell state and output")
	memory := flag.Int64("memory-limit", number("BERTH_MEMORY_LIMIT"), "bytes that all processes may use")
	pids := flag.Int64("pids-limit", number("BERTH_PIDS_LIMIT"), "processes that may exist")
	watch := flag.Bool("watch", number("BERTH_WATCH") != 0, "let the kernel, which is the sandbox's own, tell what changes where commands start")
	log := flag.String("log", os.Getenv("BERTH_GUEST_LOG"), "where to write, instead of the standard streams, once it listens")
	created := flag.Int64("created", number("BERTH_CREATED"), "a Unix time before which nothing was written above the template; 0 if it is not known")
	threads := flag.Int64("threads", number("BERTH_THREADS"), "threads to make at once, where there may be no room for more later")
	flag.Parse()
	ports := int(number(boot.PortsEnv))
	if *socket == "" && ports <= 0 {
		return fmt.Errorf("--socket or BERTH_GUEST_SOCKET is needed")
	}
	// A sandbox pays for the guest: it rather collects often than grows.
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(32 << 20)
	reserveThreads(int(*threads))
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	if os.Getpid() == 1 {
		catchSignals()
		ctx = context.Background()
	}
	s, err := server.New(server.Options{User: *user, WorkDir: *workdir, StateDir: *state, MemoryLimit: *memory,
		PIDsLimit: int(*pids), Watch: *watch, Created: unixTime(*created), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
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

// reserveThreads makes n threads, which the runtime keeps. It ends the program when
// it needs another and the sandbox is full of processes.
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

// redirect puts a file into the place of the standard output and error. Through
// /proc/1/fd root in a sandbox could else write, without end, to whoever reads them.
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

// listen listens on serial lines, or on a Unix socket where there are none.
func listen(socket string, ports int) (net.Listener, error) {
	if ports > 0 {
		lines, err := serial.Open(boot.FirstPort, ports)
		if err != nil {
			return nil, err
		}
		return serial.Listen(lines, boot.SetClock), nil
	}
	_ = os.Remove(socket) // of a former life
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
