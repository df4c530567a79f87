package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	pb "github.com/berth-run/berth/guest/guestpb/process"
)

// keptEnd is the time for which the end of a process can still be queried.
const keptEnd = 30 * time.Second

// processes serves envd's process.Process: single processes with their input,
// output, terminal and signals.
type processes struct {
	server *Server

	mu   sync.Mutex
	live map[int]*process // by pid; dead ones stay for keptEnd
}

// A process was started by Start. Its output goes to all listeners, at the pace of the
// slowest, and is dropped if there are none.
type process struct {
	config *pb.ProcessConfig
	tag    *string
	cmd    *exec.Cmd
	tty    *os.File       // nil without a terminal
	stdin  io.WriteCloser // nil if the request did not want it

	mu        sync.Mutex
	recent    []byte // the end of a terminal's output, at most maxRecent bytes
	listeners map[chan *pb.ProcessEvent]context.Context
	end       *pb.ProcessEvent
	done      chan struct{} // closed after end
}

// directoryHeader selects the directory of a process whose request has none: "home" for the user's
// home, as clients of E2B expect, an absolute path, or by default the working directory.
const directoryHeader = "Berth-Directory"

// replayHeader makes Connect send the last output of a terminal first, so that another screen
// shows what the first one does.
const replayHeader = "Berth-Replay"

// maxRecent is the number of bytes of a terminal's last output that are held.
const maxRecent = 256 << 10

// Start implements process.Process.
func (ps *processes) Start(ctx context.Context, req *connect.Request[pb.StartRequest],
	stream *connect.ServerStream[pb.StartResponse]) error {
	id, err := ps.server.requestUser(req.Header())
	if err != nil {
		return err
	}
	if dir := req.Header().Get(directoryHeader); dir != "" && req.Msg.GetProcess() != nil &&
		req.Msg.GetProcess().GetCwd() == "" {
		if dir == "home" {
			dir = "~"
		}
		req.Msg.Process.Cwd = &dir
	}
	p, readers, err := ps.begin(req.Msg, id)
	if err != nil {
		return err
	}
	events, _, stop := p.listen(ctx)
	defer stop()
	ps.watch(p, readers)
	if deadline, ok := ctx.Deadline(); ok {
		go p.killAt(deadline)
	}
	start := &pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: uint32(
		p.cmd.Process.Pid)}}}
	if err := stream.Send(&pb.StartResponse{Event: start}); err != nil {
		return err
	}
	return p.stream(ctx, events, func(ev *pb.ProcessEvent) error { return stream.Send(&pb.StartResponse{Event: ev}) })
}

// Connect implements process.Process.
func (ps *processes) Connect(ctx context.Context, req *connect.Request[pb.ConnectRequest],
	stream *connect.ServerStream[pb.ConnectResponse]) error {
	p, err := ps.find(req.Msg.Process)
	if err != nil {
		return err
	}
	events, recent, stop := p.listen(ctx)
	defer stop()
	start := &pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: uint32(
		p.cmd.Process.Pid)}}}
	if err := stream.Send(&pb.ConnectResponse{Event: start}); err != nil {
		return err
	}
	if req.Header().Get(replayHeader) != "" { // also if it is empty, so that the client can tell it from what follows
		data := &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Pty{Pty: recent}}
		if err := stream.Send(
			&pb.ConnectResponse{Event: &pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: data}}}); err != nil {
			return err
		}
	}
	return p.stream(ctx, events, func(ev *pb.ProcessEvent) error { return stream.Send(&pb.ConnectResponse{Event: ev}) })
}

// begin starts the process. Its output waits in the readers.
func (ps *processes) begin(req *pb.StartRequest, id identity) (*process, map[string]*os.File, error) {
	cmd, err := ps.command(req.Process, id)
	if err != nil {
		return nil, nil, err
	}
	p := &process{config: req.Process, tag: req.Tag, cmd: cmd, listeners: map[chan *pb.ProcessEvent]context.Context{},
		done: make(chan struct{})}
	var theirs []*os.File
	readers := map[string]*os.File{}
	closeAll := func(files ...*os.File) {
		for _, f := range files {
			f.Close()
		}
	}
	if size := req.GetPty().GetSize(); req.Pty != nil {
		tty, slave, err := pty.Open()
		if err != nil {
			return nil, nil, connect.NewError(connect.CodeUnknown, err)
		}
		_ = pty.Setsize(tty, &pty.Winsize{Cols: uint16(size.GetCols()), Rows: uint16(size.GetRows())})
		if os.Getuid() == 0 {
			_ = slave.Chown(id.uid, id.gid)
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr.Setctty = true
		p.tty, theirs, readers["pty"] = tty, []*os.File{slave}, tty
	} else {
		for _, name := range []string{"stdout", "stderr"} {
			r, w, err := outputPipe()
			if err != nil {
				closeAll(theirs...)
				return nil, nil, err
			}
			readers[name], theirs = r, append(theirs, w)
		}
		cmd.Stdout, cmd.Stderr = theirs[0], theirs[1]
		if req.Stdin == nil || *req.Stdin {
			r, w, err := inputPipe()
			if err != nil {
				closeAll(theirs...)
				return nil, nil, err
			}
			cmd.Stdin, p.stdin, theirs = r, w, append(theirs, r)
		} else if null := ps.server.shell.null; null != nil {
			cmd.Stdin = null // exec.Cmd would open another
		}
	}
	err = ps.server.reaper.start(cmd)
	closeAll(theirs...)
	if err != nil {
		for _, r := range readers {
			r.Close()
		}
		return nil, nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	ps.mu.Lock()
	ps.live[cmd.Process.Pid] = p
	ps.mu.Unlock()
	return p, readers, nil
}

func (ps *processes) command(c *pb.ProcessConfig, id identity) (*exec.Cmd, error) {
	if c.GetCmd() == "" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("cmd is missing"))
	}
	dir := ps.server.resolve(c.GetCwd(), id)
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("cwd '%s' does not exist", dir))
	}
	env := ps.server.environ(id)
	for k, v := range c.Envs {
		env = append(env, k+"="+v)
	}
	path, err := lookPath(c.Cmd, env)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	cmd := &exec.Cmd{Path: path, Args: append([]string{c.Cmd}, c.Args...), Env: env, Dir: dir,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	ps.server.become(cmd, id)
	return cmd, nil
}

// watch sends the output and then the end to the listeners.
func (ps *processes) watch(p *process, readers map[string]*os.File) {
	var all sync.WaitGroup
	for name, r := range readers {
		all.Go(func() { p.pump(name, r) })
	}
	go func() {
		_ = p.cmd.Wait() // immediately: a dead child hides dead orphans from the reaper
		ps.server.reaper.release(p.cmd.Process.Pid)
		all.Wait()
		if p.stdin != nil {
			p.stdin.Close()
		}
		p.finish()
		time.AfterFunc(keptEnd, func() {
			ps.mu.Lock()
			delete(ps.live, p.cmd.Process.Pid)
			ps.mu.Unlock()
		})
	}()
}

func (p *process) pump(name string, r *os.File) {
	defer r.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			data := append([]byte(nil), buf[:n]...)
			ev := &pb.ProcessEvent_DataEvent{}
			switch name {
			case "stdout":
				ev.Output = &pb.ProcessEvent_DataEvent_Stdout{Stdout: data}
			case "stderr":
				ev.Output = &pb.ProcessEvent_DataEvent_Stderr{Stderr: data}
			case "pty":
				ev.Output = &pb.ProcessEvent_DataEvent_Pty{Pty: data}
			}
			p.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: ev}})
		}
		if err != nil { // a terminal without processes ends with EIO
			return
		}
	}
}

func (p *process) send(ev *pb.ProcessEvent) {
	p.mu.Lock()
	p.recent = appendRecent(p.recent, ev.GetData().GetPty())
	listeners := make(map[chan *pb.ProcessEvent]context.Context, len(p.listeners))
	for ch, ctx := range p.listeners {
		listeners[ch] = ctx
	}
	p.mu.Unlock()
	for ch, ctx := range listeners {
		select {
		case ch <- ev:
		case <-ctx.Done():
		}
	}
}

// appendRecent adds output to the recent one. It moves bytes only after every maxRecent bytes.
func appendRecent(recent, data []byte) []byte {
	if len(recent)+len(data) > 2*maxRecent {
		recent = append(recent[:0], recent[min(len(recent), len(recent)+len(data)-maxRecent):]...)
	}
	return append(recent, data...)
}

func (p *process) finish() {
	st := p.cmd.ProcessState
	end := &pb.ProcessEvent_EndEvent{ExitCode: int32(st.ExitCode()), Exited: st.Exited(), Status: st.String()}
	if !st.Success() {
		text := st.String()
		end.Error = &text
	}
	p.mu.Lock()
	p.end = &pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: end}}
	p.mu.Unlock()
	close(p.done)
}

// listen subscribes to the process until ctx ends or stop is called. recent is the end of a
// terminal's output before the first event.
func (p *process) listen(ctx context.Context) (events chan *pb.ProcessEvent, recent []byte, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	events = make(chan *pb.ProcessEvent, 16)
	p.mu.Lock()
	p.listeners[events] = ctx
	recent = bytes.Clone(p.recent[max(0, len(p.recent)-maxRecent):])
	p.mu.Unlock()
	return events, recent, func() {
		cancel()
		p.mu.Lock()
		delete(p.listeners, events)
		p.mu.Unlock()
	}
}

// stream sends events until the end is sent.
func (p *process) stream(ctx context.Context, events <-chan *pb.ProcessEvent, send func(*pb.ProcessEvent) error) error {
	silence := time.NewTicker(keepAlive)
	defer silence.Stop()
	for {
		select {
		case ev := <-events:
			if err := send(ev); err != nil {
				return err
			}
		case <-silence.C:
			alive := &pb.ProcessEvent_Keepalive{Keepalive: &pb.ProcessEvent_KeepAlive{}}
			if err := send(&pb.ProcessEvent{Event: alive}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-p.done: // all output was sent to the channel before
			for len(events) > 0 {
				if err := send(<-events); err != nil {
					return err
				}
			}
			return send(p.end)
		}
	}
}

// killAt kills the process at its deadline, also if its client is gone by then.
func (p *process) killAt(deadline time.Time) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-timer.C:
		p.kill()
	case <-p.done:
	}
}

func (p *process) kill() {
	select {
	case <-p.done:
	default:
		killTree(p.cmd.Process.Pid, false, "")
	}
}

func (ps *processes) find(sel *pb.ProcessSelector) (*process, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	switch s := sel.GetSelector().(type) {
	case *pb.ProcessSelector_Pid:
		if p := ps.live[int(s.Pid)]; p != nil {
			return p, nil
		}
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", s.Pid))
	case *pb.ProcessSelector_Tag:
		for _, p := range ps.live {
			if p.tag != nil && *p.tag == s.Tag {
				return p, nil
			}
		}
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with tag %s not found", s.Tag))
	}
	return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("process is missing"))
}

// running is find for operations that need a live process.
func (ps *processes) running(sel *pb.ProcessSelector) (*process, error) {
	p, err := ps.find(sel)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done:
		return nil, connect.NewError(connect.CodeNotFound, errors.New("the process has ended"))
	default:
		return p, nil
	}
}

// List implements process.Process.
func (ps *processes) List(context.Context, *connect.Request[pb.ListRequest]) (*connect.Response[pb.ListResponse],
	error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := &pb.ListResponse{}
	for pid, p := range ps.live {
		select {
		case <-p.done:
		default:
			out.Processes = append(out.Processes, &pb.ProcessInfo{Config: p.config, Pid: uint32(pid), Tag: p.tag})
		}
	}
	return connect.NewResponse(out), nil
}

// Update implements process.Process.
func (ps *processes) Update(_ context.Context,
	req *connect.Request[pb.UpdateRequest]) (*connect.Response[pb.UpdateResponse], error) {
	p, err := ps.running(req.Msg.Process)
	if err != nil {
		return nil, err
	}
	if size := req.Msg.GetPty().GetSize(); size != nil && p.tty != nil {
		if err := pty.Setsize(p.tty, &pty.Winsize{Cols: uint16(size.Cols), Rows: uint16(size.Rows)}); err != nil {
			return nil, connect.NewError(connect.CodeUnknown, err)
		}
	}
	return connect.NewResponse(&pb.UpdateResponse{}), nil
}

// SendInput implements process.Process.
func (ps *processes) SendInput(_ context.Context,
	req *connect.Request[pb.SendInputRequest]) (*connect.Response[pb.SendInputResponse], error) {
	p, err := ps.running(req.Msg.Process)
	if err != nil {
		return nil, err
	}
	if err := p.input(req.Msg.Input); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.SendInputResponse{}), nil
}

// StreamInput implements process.Process.
func (ps *processes) StreamInput(_ context.Context,
	stream *connect.ClientStream[pb.StreamInputRequest]) (*connect.Response[pb.StreamInputResponse], error) {
	var p *process
	for stream.Receive() {
		switch ev := stream.Msg().Event.(type) {
		case *pb.StreamInputRequest_Start:
			var err error
			if p, err = ps.running(ev.Start.Process); err != nil {
				return nil, err
			}
		case *pb.StreamInputRequest_Data:
			if p == nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the first event must be start"))
			}
			if err := p.input(ev.Data.Input); err != nil {
				return nil, err
			}
		}
	}
	return connect.NewResponse(&pb.StreamInputResponse{}), stream.Err()
}

func (p *process) input(in *pb.ProcessInput) error {
	var to io.Writer
	var data []byte
	switch i := in.GetInput().(type) {
	case *pb.ProcessInput_Stdin:
		data = i.Stdin
		if p.stdin != nil {
			to = p.stdin
		}
	case *pb.ProcessInput_Pty:
		data = i.Pty
		if p.tty != nil {
			to = p.tty
		}
	}
	if to == nil {
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the process takes no such input"))
	}
	if _, err := to.Write(data); err != nil {
		return connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return nil
}

// CloseStdin implements process.Process.
func (ps *processes) CloseStdin(_ context.Context,
	req *connect.Request[pb.CloseStdinRequest]) (*connect.Response[pb.CloseStdinResponse], error) {
	p, err := ps.running(req.Msg.Process)
	if err != nil {
		return nil, err
	}
	if p.stdin == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has no stdin"))
	}
	p.stdin.Close()
	return connect.NewResponse(&pb.CloseStdinResponse{}), nil
}

// killWait bounds how long an answer to SIGKILL waits for the end of the process.
const killWait = time.Second

// SendSignal implements process.Process. After a SIGKILL it waits for the end of the process,
// at most killWait, so that a second one finds no process.
func (ps *processes) SendSignal(ctx context.Context,
	req *connect.Request[pb.SendSignalRequest]) (*connect.Response[pb.SendSignalResponse], error) {
	p, err := ps.running(req.Msg.Process)
	if err != nil {
		return nil, err
	}
	switch req.Msg.Signal {
	case pb.Signal_SIGNAL_SIGKILL:
		p.kill()
		ctx, cancel := context.WithTimeout(ctx, killWait)
		defer cancel()
		select {
		case <-p.done:
		case <-ctx.Done(): // a client does not read the output
		}
	case pb.Signal_SIGNAL_SIGTERM:
		if err := unix.Kill(-p.cmd.Process.Pid, unix.SIGTERM); err != nil {
			return nil, connect.NewError(connect.CodeNotFound, err)
		}
	default:
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("signal %v is not supported",
			req.Msg.Signal))
	}
	return connect.NewResponse(&pb.SendSignalResponse{}), nil
}
