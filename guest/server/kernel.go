package server

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/berth-run/berth/guest/guestpb/berth/guest/v1"
	"github.com/berth-run/berth/guest/jupyter"
)

// Times that a kernel has.
const (
	kernelStart     = time.Minute      // to start
	kernelInterrupt = 10 * time.Second // to end the code after an interrupt
	kernelExit      = 5 * time.Second  // to end after the code called exit()
)

// kernels are the Jupyter kernels of a sandbox. Each starts at its first call and lives
// until the sandbox ends.
type kernels struct {
	server *Server

	mu     sync.Mutex
	byName map[string]*kernel
}

// A kernel runs the code of one call at a time. If its process ends, the next call starts
// another one.
type kernel struct {
	server *Server
	name   string        // see jupyter.Instance
	turn   chan struct{} // holds a token while no call runs

	// The holder of the turn uses these.
	spec    jupyter.Spec
	client  *jupyter.Client // nil before the first start
	process *kernelProcess
	again   bool // started again since the last code ran
	removed bool
}

// A kernelProcess is the process of a kernel.
type kernelProcess struct {
	cmd   *exec.Cmd
	dir   string // of its sockets
	print *spool // what it prints outside of its protocol
	over  chan struct{}
}

// get returns the kernel with this name, which may not be started yet.
func (ks *kernels) get(name string) *kernel {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	k := ks.byName[name]
	if k == nil {
		k = &kernel{server: ks.server, name: name, turn: make(chan struct{}, 1)}
		k.turn <- struct{}{}
		ks.byName[name] = k
	}
	return k
}

// run runs code and records what it outputs, until the code has ended. Code that is empty
// only starts the kernel.
func (ks *kernels) run(c *command) {
	out := newKernelOutput(c.stdout)
	end := ks.runIn(c, out)
	out.finish()
	c.stdout.close()
	c.stderr.close()
	c.mu.Lock()
	c.end, c.over = end, true
	c.mu.Unlock()
}

func (ks *kernels) runIn(c *command, out *kernelOutput) *v1.End {
	name, _, _ := jupyter.ParseInstance(c.call.kernel)
	if _, err := jupyter.Find(ks.server.kernelDirs(), name); err != nil {
		out.write(jupyter.Event{Type: jupyter.Notice, Text: "berth: " + err.Error() + "\n"})
		return &v1.End{ExitCode: 127}
	}
	k := ks.get(c.call.kernel)
	var late <-chan time.Time
	if c.timeout > 0 {
		timer := time.NewTimer(c.timeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-k.turn:
	case <-c.stopped:
		return &v1.End{ExitCode: 128 + int32(unix.SIGINT)}
	case <-late:
		out.write(jupyter.Event{Type: jupyter.Interrupted,
			Text: "The kernel was busy with another call. Nothing was run."})
		return &v1.End{Timeout: true}
	}
	defer func() { k.turn <- struct{}{} }()
	if c.script == jupyter.EndCode {
		ks.remove(k)
		return &v1.End{}
	}
	if k.removed {
		out.write(jupyter.Event{Type: jupyter.Notice, Text: "berth: the kernel has been removed\n"})
		return &v1.End{ExitCode: 126}
	}
	if err := k.start(c); err != nil {
		out.write(jupyter.Event{Type: jupyter.Notice, Text: "berth: failed to start the kernel: " + err.Error() + "\n"})
		return &v1.End{ExitCode: 126}
	}
	if strings.TrimSpace(c.script) == "" {
		return &v1.End{}
	}
	return k.execute(c, out)
}

// remove ends a kernel, whose turn the caller holds.
func (ks *kernels) remove(k *kernel) {
	ks.mu.Lock()
	if ks.byName[k.name] == k {
		delete(ks.byName, k.name)
	}
	ks.mu.Unlock()
	if k.removed = true; k.client != nil {
		k.process.kill()
		k.client.Close()
		k.client = nil
	}
}

// kernelDirs returns the directories in which kernels are installed.
func (s *Server) kernelDirs() []string { return jupyter.Dirs(s.owner.home) }

// start starts the kernel unless it runs.
func (k *kernel) start(c *command) error {
	if k.client != nil {
		if k.process.alive() {
			return nil
		}
		k.client.Close()
		k.client, k.again = nil, true
	}
	var err error
	name, dir, own := jupyter.ParseInstance(k.name)
	if k.spec, err = jupyter.Find(k.server.kernelDirs(), name); err != nil {
		return err
	}
	place := kernelPlace{dir: k.server.opts.WorkDir}
	if own {
		place = kernelPlace{dir: cmp.Or(dir, k.server.owner.home), setup: formatters}
	}
	p, address, err := k.server.startKernel(k.spec, place)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), kernelStart, fmt.Errorf("it did not answer within %v",
		kernelStart))
	defer cancel()
	go func() {
		select {
		case <-p.over:
			cancel()
		case <-c.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	client, err := jupyter.Connect(ctx, address)
	if err != nil {
		p.kill()
		if text := p.printed(); text != "" {
			err = fmt.Errorf("%w; it printed:\n%s", err, text)
		}
		return err
	}
	k.process, k.client = p, client
	return nil
}

// A kernelPlace is what the processes of one kernel may differ in.
type kernelPlace struct {
	dir   string // in which it starts
	setup string // code that ipykernel runs first
}

// formatters let ipykernel display typed charts and data, in the media types of E2B's clients.
//
//go:embed formatters.py
var formatters string

// startKernel starts the process of a kernel in a session of its own. It is not part of the call that needs it, so that
// it outlives the call. Its user is that of commands, or root in a directory that only root may enter: E2B's kernels
// all run as root.
func (s *Server) startKernel(spec jupyter.Spec, place kernelPlace) (*kernelProcess, jupyter.Address, error) {
	dir, err := os.MkdirTemp(s.shell.state.memory, "berth-kernel-") // the system's directory, if memory is ""
	if err != nil {
		return nil, jupyter.Address{}, err
	}
	id := s.owner
	if !mayEnter(place.dir, id) {
		if id, err = lookup("root"); err != nil {
			return nil, jupyter.Address{}, errors.Join(err, os.RemoveAll(dir))
		}
	}
	p := &kernelProcess{dir: dir, over: make(chan struct{})}
	p.print = &spool{name: filepath.Join(dir, "output"), ring: func() {}}
	var file string
	address, err := jupyter.NewAddress(dir, spec)
	if err == nil {
		file, err = address.WriteConnectionFile(id.uid, id.gid)
	}
	if err == nil && os.Getuid() == 0 {
		err = os.Chown(dir, id.uid, id.gid)
	}
	if err == nil {
		err = p.start(s, id, spec, place, file)
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, address, err
	}
	return p, address, nil
}

func (p *kernelProcess) start(s *Server, id identity, spec jupyter.Spec, place kernelPlace,
	connectionFile string) error {
	argv := spec.Command(connectionFile)
	env := append(s.environ(id), "PYDEVD_DISABLE_FILE_VALIDATION=1")
	for k, v := range spec.Env {
		env = append(env, k+"="+v)
	}
	path, err := lookPath(argv[0], env)
	if err != nil {
		return err
	}
	if strings.Contains(strings.Join(argv, " "), "ipykernel") {
		argv = append(argv, "--HistoryManager.enabled=False", "--InteractiveShell.colors=NoColor",
			"--IPKernelApp.log_level=CRITICAL",
			"--IPKernelApp.exec_lines="+packSurrogates+"\n"+place.setup)
	}
	p.cmd = &exec.Cmd{Path: path, Args: argv, Env: env, Dir: place.dir, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if s.shell.null != nil {
		p.cmd.Stdin = s.shell.null
	}
	s.become(p.cmd, id)
	pipes, err := newOutputs(p.cmd, p.print, p.print)
	if err != nil {
		return err
	}
	err = s.reaper.start(p.cmd)
	pipes.started()
	if err != nil {
		pipes.close()
		return err
	}
	go func() {
		_ = p.cmd.Wait() // its status is in ProcessState
		s.reaper.release(p.cmd.Process.Pid)
		pipes.drain()
		p.print.close()
		close(p.over)
		os.RemoveAll(p.dir)
	}()
	return nil
}

// packSurrogates makes ipykernel send text that is not valid Unicode, such as half of a
// surrogate pair. By itself it loses the message and prints a traceback of its own.
const packSurrogates = `def _berth(session, pack):
    def encode(message):
        try:
            return pack(message)
        except UnicodeEncodeError:
            import json
            return json.dumps(message, default=str).encode()
    session.pack = encode
_berth(get_ipython().kernel.session, get_ipython().kernel.session.pack)
del _berth`

func (p *kernelProcess) alive() bool {
	select {
	case <-p.over:
		return false
	default:
		return true
	}
}

// awaitEnd waits for a process that ends by itself, and kills it if it does not.
func (p *kernelProcess) awaitEnd() {
	select {
	case <-p.over:
	case <-time.After(kernelExit):
		p.kill()
	}
}

// kill ends the process and what it started.
func (p *kernelProcess) kill() {
	if p.alive() {
		killTree(p.cmd.Process.Pid, false, "")
	}
	<-p.over
}

// printed returns the end of what the process printed.
func (p *kernelProcess) printed() string {
	buf := make([]byte, 4<<10)
	_, n, _ := p.print.read(0, buf)
	return jupyter.Plain(strings.TrimSpace(string(buf[:n])))
}

// interrupt sends SIGINT to the kernel's session, as a terminal does: also to programs that
// the code runs.
func (k *kernel) interrupt() {
	if k.spec.InterruptMode == "message" {
		_ = k.client.Interrupt() // if it fails, the kernel is ended
		return
	}
	_ = unix.Kill(-k.process.cmd.Process.Pid, unix.SIGINT)
}

var (
	errKernelTime = errors.New("the code exceeded its time")
	errKernelStop = errors.New("the call was cancelled")
)

// execute runs code. At its timeout, or when the call is cancelled, the code is
// interrupted; a kernel that does not react is ended.
func (k *kernel) execute(c *command, out *kernelOutput) *v1.End {
	if k.again {
		out.write(jupyter.Event{Type: jupyter.Restarted})
		k.again = false
	}
	ctx, giveUp := context.WithCancelCause(context.Background())
	defer giveUp(nil)
	ended := make(chan struct{})
	var why error
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		why = k.watch(c, ended, giveUp)
	}()
	reply, err := k.evaluate(ctx, c.script, out)
	close(ended)
	<-watched
	if err == nil && reply.Exits { // the next call must not reach this process
		k.process.awaitEnd()
	}
	switch {
	case err == nil && why == errKernelTime:
		out.write(jupyter.Event{Type: jupyter.Interrupted,
			Text: fmt.Sprintf("The code was interrupted after %v. Variables are kept.", c.timeout)})
		return &v1.End{Timeout: true}
	case err == nil && why == errKernelStop:
		return &v1.End{ExitCode: 128 + int32(unix.SIGINT)}
	case err == nil && reply.Status == "ok":
		return &v1.End{}
	case err == nil:
		return &v1.End{ExitCode: 1}
	}
	k.process.kill()
	text := "The kernel has ended: " + k.process.cmd.ProcessState.String() + "."
	if status, ok := k.process.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() == unix.SIGKILL {
		text += " Perhaps the memory of the container was used up."
	}
	switch why {
	case errKernelTime:
		text = fmt.Sprintf("The code did not react to an interrupt after %v, so the kernel was ended.", c.timeout)
	case errKernelStop:
		text = "The call was cancelled and the code did not react to an interrupt, so the kernel was ended."
	}
	out.write(jupyter.Event{Type: jupyter.Died, Text: text})
	return &v1.End{ExitCode: 128 + int32(unix.SIGKILL), Timeout: why == errKernelTime}
}

// evaluate runs code, and silently the code wrapped around it.
func (k *kernel) evaluate(ctx context.Context, script string, out *kernelOutput) (jupyter.Reply, error) {
	before, code, after := jupyter.Unwrap(script)
	if before != "" {
		if _, err := k.client.ExecuteSilently(ctx, before); err != nil {
			return jupyter.Reply{}, err
		}
	}
	reply, err := k.client.Execute(ctx, code, out.message)
	if err != nil || reply.Exits {
		return reply, err
	}
	if _, _, own := jupyter.ParseInstance(k.name); own && reply.Count > 0 {
		out.write(jupyter.Event{Type: jupyter.Count, Text: strconv.Itoa(reply.Count)})
	}
	if after != "" {
		_, err = k.client.ExecuteSilently(ctx, after)
	}
	return reply, err
}

// watch interrupts the code at its timeout or when the call is cancelled, and returns the
// reason. It calls giveUp if the kernel has ended, or does not react.
func (k *kernel) watch(c *command, ended <-chan struct{}, giveUp context.CancelCauseFunc) (why error) {
	var late <-chan time.Time
	if c.timeout > 0 {
		timer := time.NewTimer(c.timeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-ended:
		return nil
	case <-k.process.over:
		giveUp(errors.New("the kernel has ended"))
		return nil
	case <-late:
		why = errKernelTime
	case <-c.stopped:
		why = errKernelStop
	}
	grace := time.NewTimer(kernelInterrupt)
	defer grace.Stop()
	again := time.NewTicker(time.Second) // one interrupt may end a part of the code only
	defer again.Stop()
	for {
		k.interrupt()
		select {
		case <-ended:
			return why
		case <-k.process.over:
		case <-grace.C:
		case <-again.C:
			continue
		}
		giveUp(why)
		return why
	}
}
