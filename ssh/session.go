package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/crypto/ssh"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// Limits of one session.
const (
	maxVariables = 64
	maxEnviron   = 32 << 10 // bytes of all variables
	maxSide      = 1000     // columns or rows of a terminal
	pieceSize    = 32 << 10 // bytes of input that are sent together

	hangupTime = 5 * time.Second // for a process to end after its client has left
	killTime   = 10 * time.Second
)

// Messages of the protocol, RFC 4254, section 6.
type (
	ptyRequest struct {
		Term          string
		Columns, Rows uint32
		Width, Height uint32
		Modes         string
	}
	windowChange struct{ Columns, Rows, Width, Height uint32 }
	envRequest   struct{ Name, Value string }
	execRequest  struct{ Command string }
	exitSignal   struct {
		Signal     string
		CoreDumped bool
		Message    string
		Language   string
	}
)

// shell starts the shell of the container, and shellCommand a command with it.
const (
	shell        = "if command -v bash >/dev/null; then exec bash -l; fi; exec sh -l"
	plainShell   = "if command -v bash >/dev/null; then exec bash; fi; exec sh"
	shellCommand = `if command -v bash >/dev/null; then exec bash -c "$0"; fi; exec sh -c "$0"`
)

// variable matches the names of variables that a client may set.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// A session is a channel for one process.
type session struct {
	conn *conn
	ch   ssh.Channel

	env    map[string]string
	bytes  int // of env
	tty    *guest.Size
	client *guest.Client

	mu      sync.Mutex
	process *guest.Process // nil before the start
	size    *guest.Size    // that the client has asked for last

	begun bool // a process was started; owned by the loop of requests, as what is above mu
}

// session serves a channel of type session.
func (c *conn) session(nc ssh.NewChannel) {
	ch, requests, err := nc.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	s := &session{conn: c, ch: ch, env: map[string]string{}, client: c.guest}
	var running sync.WaitGroup
	defer running.Wait()
	gone, left := context.WithCancel(c.ctx)
	defer left() // the client has closed the channel
	for r := range requests {
		c.heard.Add(1)
		ok := s.request(gone, r, &running)
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
		if ok {
			s.begin(gone, r, &running)
		}
	}
}

// request checks and carries out a request of the client, except that begin starts the process.
func (s *session) request(ctx context.Context, r *ssh.Request, _ *sync.WaitGroup) bool {
	switch r.Type {
	case "pty-req":
		var p ptyRequest
		if s.begun || s.conn.noPTY || ssh.Unmarshal(r.Payload, &p) != nil || len(p.Term) > 128 {
			return false
		}
		s.tty = sizeOf(p.Columns, p.Rows)
		s.env["TERM"] = clean(p.Term)
		return true
	case "window-change":
		var w windowChange
		if ssh.Unmarshal(r.Payload, &w) != nil || s.tty == nil {
			return false
		}
		return s.resize(ctx, *sizeOf(w.Columns, w.Rows))
	case "env":
		var e envRequest
		if s.begun || ssh.Unmarshal(r.Payload, &e) != nil || !variable.MatchString(e.Name) ||
			strings.ContainsRune(e.Value, 0) || len(s.env) >= maxVariables ||
			s.bytes+len(e.Name)+len(e.Value) > maxEnviron {
			return false
		}
		s.bytes += len(e.Name) + len(e.Value)
		s.env[e.Name] = e.Value
		return true
	case "signal":
		var e struct{ Name string }
		return ssh.Unmarshal(r.Payload, &e) == nil && s.signal(ctx, e.Name)
	case "shell":
		return !s.begun
	case "exec":
		var e execRequest
		return !s.begun && ssh.Unmarshal(r.Payload, &e) == nil && !strings.ContainsRune(e.Command, 0)
	case "subsystem":
		var e struct{ Name string }
		return !s.begun && ssh.Unmarshal(r.Payload, &e) == nil && e.Name == "sftp"
	}
	return false // such as x11-req and auth-agent-req@openssh.com
}

// clean returns text without control characters.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}

func sizeOf(columns, rows uint32) *guest.Size {
	side := func(n uint32, otherwise int) int {
		if n == 0 {
			return otherwise
		}
		return int(min(n, maxSide))
	}
	return &guest.Size{Cols: side(columns, 80), Rows: side(rows, 24)}
}

// begin starts the process of a request that starts one.
func (s *session) begin(ctx context.Context, r *ssh.Request, running *sync.WaitGroup) {
	req := guest.ProcessRequest{Cmd: "/bin/sh", Env: s.env, TTY: s.tty, In: true}
	switch r.Type {
	case "shell":
		req.Args = []string{"-c", plainShell}
		if s.tty != nil {
			req.Args = []string{"-c", shell}
		}
	case "exec":
		var e execRequest
		_ = ssh.Unmarshal(r.Payload, &e) // request has checked it
		req.Args = []string{"-c", shellCommand, e.Command}
	case "subsystem":
		req.Cmd, req.Args, req.TTY = guest.Program, []string{"sftp"}, nil
	default:
		return
	}
	s.begun = true
	running.Go(func() {
		defer s.ch.Close()
		s.run(ctx, req)
	})
}

// run runs a process to its end, or until the client has left.
func (s *session) run(ctx context.Context, req guest.ProcessRequest) {
	if s.conn.container == "" {
		s.fail(fmt.Sprintf("There is no running container %q in the project %s. The user name of a connection is the "+
			"name or the id of a container.", clean(s.conn.user), s.conn.caller.Project), 255)
		return
	}
	// The stream outlives the client, to see the process end.
	stream, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	p, err := s.client.Start(stream, req)
	if err != nil {
		code := 255
		text := startError(err)
		if n := guest.StartExitCode(text); n != 0 {
			code = n
		}
		s.fail(text, code)
		return
	}
	s.mu.Lock()
	s.process = p
	size := s.size
	s.mu.Unlock()
	if size != nil && req.TTY != nil {
		_ = p.Resize(stream, *size) // as good as if it had come later
	}
	done := make(chan struct{})
	left := context.AfterFunc(ctx, func() { s.hangUp(p.PID, done, end) })
	go s.input(stream, p)
	for ev, err := range p.Events() {
		if err != nil {
			close(done)
			if left() {
				s.fail("The connection to the container was lost: it may have ended.", 255)
			}
			return
		}
		if ev.Ended {
			close(done)
			left()
			s.exit(ev)
			return
		}
		_, _ = s.ch.Write(ev.Stdout)          // if the client has left, hangUp ends the process
		_, _ = s.ch.Stderr().Write(ev.Stderr) // as above
	}
}

// startError returns the reason why a process did not start.
func startError(err error) string {
	if e, ok := errors.AsType[*connect.Error](err); ok {
		return e.Message()
	}
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e.Message
	}
	return "The container does not answer."
}

// fail tells the client why there is no process.
func (s *session) fail(text string, code int) {
	fmt.Fprintf(s.ch.Stderr(), "berth: %s\r\n", clean(text))
	_, _ = s.ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
}

// exit tells the client how the process ended.
func (s *session) exit(ev guest.ProcessEvent) {
	_ = s.ch.CloseWrite()
	if ev.ExitCode >= 0 {
		_, _ = s.ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(ev.ExitCode)}))
		return
	}
	name, dumped := signalOf(ev.Status)
	_, _ = s.ch.SendRequest("exit-signal", false, ssh.Marshal(exitSignal{Signal: name, CoreDumped: dumped}))
}

// input passes what the client sends to the process.
func (s *session) input(ctx context.Context, p *guest.Process) {
	buf := make([]byte, pieceSize)
	for {
		n, err := s.ch.Read(buf)
		if n > 0 {
			s.conn.heard.Add(1)
			if p.Write(ctx, buf[:n]) != nil {
				_, _ = io.Copy(io.Discard, s.ch) // the process reads no more
				return
			}
		}
		if errors.Is(err, io.EOF) {
			_ = p.CloseStdin(ctx)
		}
		if err != nil {
			return
		}
	}
}

func (s *session) running() *guest.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// resize sets the size of the terminal, before or after the start.
func (s *session) resize(ctx context.Context, size guest.Size) bool {
	if !s.begun {
		s.tty = &size
		return true
	}
	s.mu.Lock()
	p := s.process
	s.size = &size // for a process that is being started
	s.mu.Unlock()
	return p == nil || p.Resize(ctx, size) == nil
}

// signal sends the process a signal.
func (s *session) signal(ctx context.Context, name string) bool {
	p := s.running()
	if p == nil || !known[name] {
		return false
	}
	switch name {
	case "TERM":
		return p.Terminate(ctx) == nil
	case "KILL":
		return p.Kill(ctx) == nil
	}
	return kill(ctx, s.client, name, p.PID) == nil
}

// kill sends a signal to the processes of a session, whose leader is pid.
func kill(ctx context.Context, client *guest.Client, name string, pid int) error {
	p, err := client.Start(ctx, guest.ProcessRequest{Cmd: "/bin/sh",
		Args: []string{"-c", `kill -s "$0" -- "-$1"`, name, strconv.Itoa(pid)}})
	if err != nil {
		return fmt.Errorf("send signal: %w", err)
	}
	for ev, err := range p.Events() {
		if err != nil {
			return fmt.Errorf("send signal: %w", err)
		}
		if ev.Ended && ev.ExitCode != 0 {
			return errors.New("the signal could not be sent")
		}
	}
	return nil
}

// hangUp ends the process of a client that has left: it gets SIGHUP, as from sshd, and later SIGKILL. What has detached
// itself from it continues.
func (s *session) hangUp(pid int, done <-chan struct{}, end func()) {
	client, release := s.conn.house()
	defer release()
	ctx, cancel := s.conn.door.opts.Clock.WithTimeout(context.Background(), killTime)
	defer cancel()
	defer end()
	_ = kill(ctx, client, "HUP", pid) // an error means that it has ended, or that the container has
	select {
	case <-done:
	case <-s.conn.door.opts.Clock.After(hangupTime):
		_ = kill(ctx, client, "KILL", pid) // as above
	}
}
