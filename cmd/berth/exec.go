package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/berth-run/berth/guest"
)

// execOptions are the options of a process in a container.
type execOptions struct {
	user, dir  string
	env        []string
	input, tty bool
	detach     bool   // print the PID and let the process run
	tag        string // of the process; may be empty
}

func newExec() *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec [flags] CONTAINER COMMAND [ARG...]",
		Short: "Run one command in a container",
		Long: `Run one command in a container and exit with its exit code: 127 if there is no such
command, 126 if it cannot be run, 130 after an interrupt.

  berth exec cntr_… ls -la /mnt/data
  berth exec -i cntr_… tar x < files.tar
  berth exec -it cntr_… python3
  berth exec -d cntr_… python3 -m http.server

-d prints the id of the process in the container and lets it run. berth logs has its output
as long as the command is connected, so send it to a file; berth exec CONTAINER kill PID ends it.

On a terminal, output is shown without control characters, unless -t is given: a program
with -t controls your terminal like a local program.`,
		Args: cobra.MinimumNArgs(2),
	}
	connect := clientFlags(cmd)
	cmd.Flags().StringVarP(&o.user, "user", "u", "", "user in the container")
	cmd.Flags().StringVarP(&o.dir, "workdir", "w", "", "working directory")
	cmd.Flags().StringArrayVarP(&o.env, "env", "e", nil, "environment variable, NAME=value")
	cmd.Flags().BoolVarP(&o.input, "interactive", "i", false, "pass standard input to the command")
	cmd.Flags().BoolVarP(&o.tty, "tty", "t", false, "allocate a terminal")
	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "start the command, print its process id, and do not wait for it")
	cmd.MarkFlagsMutuallyExclusive("detach", "interactive")
	cmd.MarkFlagsMutuallyExclusive("detach", "tty")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := connect()
		id, err := containers.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		command := args[1:]
		if len(command) > 1 && command[0] == "--" {
			command = command[1:]
		}
		return execute(cmd.Context(), c.guest(id, o.user), command, o)
	}
	cmd.Flags().SetInterspersed(false) // flags after the container belong to the command
	cmd.ValidArgsFunction = containers.complete(connect, 1)
	return cmd
}

func newAttach() *cobra.Command {
	o := execOptions{input: true, tty: true, tag: guest.TerminalTag + "-" + rand.Text()}
	var list, asJSON bool
	var join int
	cmd := &cobra.Command{
		Use:   "attach CONTAINER",
		Short: "Open or join a terminal in a running container",
		Long: `Open a terminal in a running container, or join one that another berth attach or the web
console has opened. All attached clients see the same and may type.

  berth attach box
  berth attach box --list
  berth attach box --join 12

The container's output reaches your terminal unfiltered, control sequences included: it can
set titles, clear the screen and, if your terminal allows it, write to the clipboard.`,
		Args: cobra.ExactArgs(1),
	}
	connect := clientFlags(cmd)
	cmd.Flags().StringVarP(&o.user, "user", "u", "", "user in the container")
	cmd.Flags().BoolVar(&list, "list", false, "list the open terminals")
	cmd.Flags().IntVar(&join, "join", 0, "join the terminal with this number, which goes on when you leave")
	cmd.Flags().BoolVar(&asJSON, "json", false, "with --list: print each terminal as a line of JSON")
	cmd.MarkFlagsMutuallyExclusive("list", "join")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if list {
			c := connect()
			id, err := containers.resolve(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return listTerminals(cmd, c.guest(id, ""), asJSON)
		}
		if !term.IsTerminal(int(os.Stdin.Fd())) {
			return errors.New("standard input is not a terminal; use berth exec -i to pipe input to a command")
		}
		c := connect()
		id, err := containers.resolve(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		if join > 0 {
			return joinTerminal(cmd.Context(), c.guest(id, ""), join)
		}
		err = execute(cmd.Context(), c.guest(id, o.user), []string{"/bin/bash", "-l", "-i"}, o)
		if errors.Is(err, errLost) {
			return fmt.Errorf("%w; to find this terminal: berth attach %s --list; to open another one: berth attach %s",
				err, shortID(id), shortID(id))
		}
		return err
	}
	cmd.ValidArgsFunction = containers.complete(connect, 1)
	return cmd
}

// execute runs a process to its end, connected to the input and output of this command.
func execute(ctx context.Context, c *guest.Client, command []string, o execOptions) error {
	req := guest.ProcessRequest{Cmd: command[0], Args: command[1:], Dir: o.dir, In: o.input, Tag: o.tag,
		Env: map[string]string{}}
	for _, kv := range o.env {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return badUsage("--env %s: must be NAME=value", kv)
		}
		req.Env[k] = v
	}
	stdin := int(os.Stdin.Fd())
	if o.tty {
		req.TTY = &guest.Size{Cols: 80, Rows: 24}
		if cols, rows, err := term.GetSize(stdin); err == nil {
			req.TTY = &guest.Size{Cols: cols, Rows: rows}
		}
		req.Env["TERM"] = envOr("TERM", "xterm-256color")
	}
	p, err := c.Start(ctx, req)
	if err != nil {
		return notStarted(err)
	}
	if o.detach {
		_, err := fmt.Fprintln(os.Stdout, p.PID)
		return err
	}
	if o.tty && term.IsTerminal(stdin) {
		restore, err := raw(ctx, p, stdin)
		if err != nil {
			return err
		}
		defer restore()
	}
	if o.input {
		go sendInput(ctx, p)
	}
	if o.tty {
		return output(ctx, p, os.Stdout, os.Stderr, true)
	}
	return output(ctx, p, onTerminal(os.Stdout), onTerminal(os.Stderr), true)
}

// raw passes keys of this terminal to the process as they are, and its size.
func raw(ctx context.Context, p *guest.Process, stdin int) (restore func(), err error) {
	old, err := term.MakeRaw(stdin)
	if err != nil {
		return nil, err
	}
	stop := followSize(ctx, p, stdin)
	return func() {
		stop()
		_ = term.Restore(stdin, old)
	}, nil
}

// A terminalRow is a terminal as berth attach --list prints it.
type terminalRow struct {
	Number  int      `json:"number"`
	Command []string `json:"command"`
}

// listTerminals prints the terminals that can be joined.
func listTerminals(cmd *cobra.Command, c *guest.Client, asJSON bool) error {
	found, err := c.Terminals(cmd.Context())
	if err != nil {
		return refusal(err)
	}
	rows := make([]terminalRow, len(found))
	for i, t := range found {
		rows[i] = terminalRow{t.PID, t.Command}
	}
	l := &listing{json: asJSON}
	return printList(cmd.OutOrStdout(), l, rows, nil, "NUMBER\tCOMMAND", func(t terminalRow) string {
		return fmt.Sprintf("%d\t%s", t.Number, inLine(strings.Join(t.Command, " ")))
	})
}

// joinTerminal connects this terminal to one that is open. If ctx ends, the other one continues.
func joinTerminal(ctx context.Context, c *guest.Client, pid int) error {
	p, err := c.Join(ctx, pid)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no terminal %d; berth attach CONTAINER --list lists them", pid)
	}
	if err != nil {
		return refusal(err)
	}
	stdin := int(os.Stdin.Fd())
	restore, err := raw(ctx, p, stdin)
	if err != nil {
		return err
	}
	defer restore()
	if cols, rows, err := term.GetSize(stdin); err == nil {
		_ = p.Resize(ctx, guest.Size{Cols: cols, Rows: rows}) // the process draws itself again
	}
	go sendInput(ctx, p)
	return output(ctx, p, os.Stdout, os.Stderr, false)
}

// errLost is the error for a connection that ended before the process.
var errLost = errors.New("the connection to the server was lost; the container may still run")

// lost returns the error of a stream that broke.
func lost(err error) error {
	if _, ok := errors.AsType[*apiError](err); ok {
		return err
	}
	return errLost
}

// notStarted returns the error of a process that did not start. The exit code is that of a shell.
func notStarted(err error) error {
	err = refusal(err)
	if _, ok := errors.AsType[*apiError](err); ok {
		return err
	}
	text := err.Error()
	if e, ok := errors.AsType[*connect.Error](err); ok {
		text = e.Message()
	}
	code := guest.StartExitCode(text)
	if code == 0 {
		return err
	}
	fmt.Fprintln(os.Stderr, "berth:", inLine(text))
	return exitError(code)
}

// output copies the output of a process until it ends. If ctx ends first and the process is ours, it
// kills it.
func output(ctx context.Context, p *guest.Process, stdout, stderr io.Writer, ours bool) error {
	for ev, err := range p.Events() {
		switch {
		case err != nil:
			if ctx.Err() != nil {
				if ours {
					_ = p.Kill(context.WithoutCancel(ctx))
				}
				return exitError(exitInterrupt)
			}
			return lost(refusal(err))
		case ev.Ended && ev.ExitCode < 0: // killed by a signal, reported as shells do
			fmt.Fprintln(os.Stderr, "berth:", inLine(ev.Status))
			return exitError(137)
		case ev.Ended && ev.ExitCode > 0:
			return exitError(ev.ExitCode)
		case ev.Ended:
			return nil
		}
		if _, err := stdout.Write(ev.Stdout); err != nil {
			return err
		}
		if _, err := stderr.Write(ev.Stderr); err != nil {
			return err
		}
	}
	return nil
}

func sendInput(ctx context.Context, p *guest.Process) {
	buf := make([]byte, 32<<10)
	for {
		n, err := os.Stdin.Read(buf)
		if n > 0 && p.Write(ctx, buf[:n]) != nil {
			return // the process has ended
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				_ = p.CloseStdin(ctx)
			}
			return
		}
	}
}

// followSize resizes the process's terminal with this one.
func followSize(ctx context.Context, p *guest.Process, fd int) (stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	go func() {
		for range changed {
			if cols, rows, err := term.GetSize(fd); err == nil {
				_ = p.Resize(ctx, guest.Size{Cols: cols, Rows: rows})
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		close(changed)
	}
}
