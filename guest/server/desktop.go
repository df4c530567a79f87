package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-run/berth/guest/desktop"
	v1 "github.com/berth-run/berth/guest/guestpb/berth/guest/v1"
)

// desktopProgram starts a desktop of a width and a height on display :0, and runs until it ends.
const desktopProgram = "berth-desktop"

// The size of a desktop for which a call requests none.
const (
	desktopWidth  = 1024
	desktopHeight = 768
)

// desktopStart is the time that a desktop has to start.
const desktopStart = time.Minute

// A desktops is the desktop of a sandbox. It starts at its first call, unless a program of the
// sandbox has started an X server on display :0, and lives until the sandbox ends. One call at a
// time uses it.
type desktops struct {
	server *Server
	turn   chan struct{} // holds a token while no call runs
	screen *desktop.Screen
}

func newDesktops(s *Server) *desktops {
	d := &desktops{server: s, turn: make(chan struct{}, 1)}
	d.turn <- struct{}{}
	return d
}

var (
	errDesktopTime = errors.New("the call exceeded its time")
	errDesktopStop = errors.New("the call was cancelled")
)

// run carries out the actions of a command and records the screenshot after them.
func (d *desktops) run(c *command) {
	var deadline time.Time
	if c.timeout > 0 {
		deadline = time.Now().Add(c.timeout)
	}
	err := d.act(c, func() error {
		select {
		case <-c.stopped:
			return errDesktopStop
		default:
		}
		if !deadline.IsZero() && time.Now().After(deadline) {
			return errDesktopTime
		}
		return nil
	})
	end := &v1.End{}
	if err != nil {
		fmt.Fprintln(c.stderr, err)
		end.ExitCode = 1
	}
	switch {
	case errors.Is(err, errDesktopTime):
		end = &v1.End{Timeout: true}
	case errors.Is(err, errDesktopStop):
		end.ExitCode = 128 + int32(syscall.SIGINT)
	case errors.Is(err, errNoDesktop):
		end.ExitCode = 127
	}
	c.stdout.close()
	c.stderr.close()
	c.mu.Lock()
	c.end, c.over = end, true
	c.mu.Unlock()
}

// act carries out the actions of a command. A failed action does not prevent the screenshot.
func (d *desktops) act(c *command, stopped func() error) error {
	var actions []desktop.Action
	if script := strings.TrimSpace(c.script); script != "" {
		if err := json.Unmarshal([]byte(script), &actions); err != nil {
			return fmt.Errorf("the actions are not valid: %w", err)
		}
	}
	if err := d.acquire(stopped); err != nil {
		return err
	}
	defer func() { d.turn <- struct{}{} }()
	size := c.call.desktop
	if err := d.connect(size, stopped); err != nil {
		return err
	}
	if len(actions) == 0 {
		return nil
	}
	if w, h := d.screen.Size(); size.Width > 0 && size.Height > 0 && (w != int(size.Width) || h != int(size.Height)) {
		return fmt.Errorf(
			"the container's desktop has %d × %d pixels, not %d × %d: it keeps the size with which it was started", w,
			h, size.Width, size.Height)
	}
	failure := d.screen.Act(actions, stopped)
	if failure != nil && !desktop.Refused(failure) {
		d.close()
		return failure
	}
	picture, err := d.screen.Screenshot()
	if err != nil {
		d.close()
		return errors.Join(failure, err)
	}
	_, _ = c.stdout.Write(picture)
	return failure
}

// acquire waits until no other call uses the desktop.
func (d *desktops) acquire(stopped func() error) error {
	for {
		select {
		case <-d.turn:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
		if err := stopped(); err != nil {
			return err
		}
	}
}

// close drops the connection to the X server. The next call connects again.
func (d *desktops) close() {
	if d.screen != nil {
		d.screen.Close()
		d.screen = nil
	}
}

// connect connects to the desktop, and starts it if none runs.
func (d *desktops) connect(size *v1.Desktop, stopped func() error) (err error) {
	if d.screen != nil {
		if d.screen.Alive() {
			return nil
		}
		d.close()
	}
	if d.screen, err = desktop.Connect(desktop.Number); err == nil {
		return nil
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOENT) {
		return err // an X server that does not work
	}
	over, printed, err := d.start(size)
	if err != nil {
		return err
	}
	for until := time.Now().Add(desktopStart); time.Now().Before(until); {
		if d.screen, err = desktop.Connect(desktop.Number); err == nil {
			if err = d.screen.AwaitReady(stopped); err != nil {
				d.close()
			}
			return err
		}
		if serr := stopped(); serr != nil {
			return serr
		}
		select {
		case <-over:
			return fmt.Errorf("the desktop has ended: %s", printed())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return fmt.Errorf("the desktop did not start within %v: %w", desktopStart, err)
}

var errNoDesktop = errors.New("the container's template has no desktop; use the template 'desktop'")

// start starts the desktop as the user of commands, in a session of its own. It is not part of
// the call that needs it, so that it outlives the call. over is closed when it has ended, and
// printed returns the end of what it printed.
func (d *desktops) start(size *v1.Desktop) (over <-chan struct{}, printed func() string, err error) {
	s := d.server
	env := s.environ(s.owner)
	path, err := lookPath(desktopProgram, env)
	if err != nil {
		return nil, nil, errNoDesktop
	}
	width, height := int(size.Width), int(size.Height)
	if width == 0 || height == 0 {
		width, height = desktopWidth, desktopHeight
	}
	cmd := &exec.Cmd{Path: path, Args: []string{desktopProgram, strconv.Itoa(width), strconv.Itoa(height)}, Env: env,
		Dir:         s.opts.WorkDir,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if s.shell.null != nil {
		cmd.Stdin = s.shell.null
	}
	s.become(cmd, s.owner)
	out := &spool{name: filepath.Join(s.opts.StateDir, "output", "desktop-"+strconv.FormatInt(time.Now().UnixNano(),
		36)), ring: func() {}}
	pipes, err := newOutputs(cmd, out, out)
	if err != nil {
		return nil, nil, fmt.Errorf("start the desktop: %w", err)
	}
	err = s.reaper.start(cmd)
	pipes.started()
	if err != nil {
		pipes.close()
		return nil, nil, fmt.Errorf("start the desktop: %w", err)
	}
	ended, text := make(chan struct{}), ""
	go func() {
		_ = cmd.Wait() // its status is in ProcessState
		s.reaper.release(cmd.Process.Pid)
		pipes.drain()
		out.close()
		buf := make([]byte, 4<<10)
		_, n, _ := out.read(0, buf)
		text = strings.ToValidUTF8(strings.TrimSpace(string(buf[:n])), "?")
		close(ended)
		out.discard(false)
	}()
	return ended, func() string { <-ended; return text }, nil
}
