package command

import (
	"context"
	"encoding/base64"
	"errors"
	"iter"
	"net/http"
	"strings"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/guest/jupyter"
)

// Limits of the images that code shows.
const (
	maxImages = 8
	maxImage  = 2 << 20 // bytes
)

// A Status is the state of a command.
type Status string

// States of a command.
const (
	Running  Status = "running"
	Exited   Status = "exited"
	TimedOut Status = "timeout"
)

// An Image is a picture that code has shown.
type Image struct {
	MediaType string
	Data      []byte
}

// A Result is the state and the output of a command so far.
type Result struct {
	Status         Status
	ExitCode       *int // of an exited command; 128 + n if signal n ended it
	Stdout, Stderr string
	Truncated      bool     // Stdout or Stderr lacks the middle of the output
	Files          []string // in the container, with the whole output of a truncated one
	Images         []Image
}

// A Command is a command of a container.
type Command struct {
	ID        string
	Container berth.ContainerID

	exec     guest.Execer
	accept   sync.Once
	accepted chan struct{} // closed when the container has the command
	done     chan struct{} // closed at the end
	kernel   string
	lines    jupyter.Decoder

	mu      sync.Mutex
	changed chan struct{} // closed at the next output
	result  Result
	err     error
	output  [2]excerpt
	shown   []byte // the start of the output of both streams, in order of arrival
	limit   int
}

func newCommand(limit int, id string, container berth.ContainerID, kernel string) *Command {
	c := &Command{ID: id, Container: container, accepted: make(chan struct{}), done: make(chan struct{}),
		changed: make(chan struct{}), limit: limit, kernel: kernel, result: Result{Status: Running}}
	for i := range c.output {
		c.output[i].limit = limit
	}
	return c
}

// follow reads the events of the command until it has ended.
func (c *Command) follow(events iter.Seq2[guest.ShellEvent, error]) {
	defer close(c.done)
	for ev, err := range events {
		if err != nil {
			c.fail(err)
			return
		}
		c.record(ev)
	}
	c.mu.Lock()
	ended := c.result.Status != Running
	c.mu.Unlock()
	if !ended {
		c.fail(errors.New("no end of the command"))
	}
}

func (c *Command) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.result.Status == Running {
		c.err = explain(c.ID, err)
	}
}

// record records an event.
func (c *Command) record(ev guest.ShellEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch ev.Kind {
	case guest.ShellStdout:
		if c.kernel != "" {
			for _, e := range c.lines.Write(ev.Data, ev.Skipped) {
				c.show(e)
			}
			return
		}
		c.add(0, ev.Data, ev.Skipped)
	case guest.ShellStderr:
		c.add(1, ev.Data, ev.Skipped)
	case guest.ShellExit:
		code := ev.ExitCode
		c.result.Status, c.result.ExitCode = Exited, &code
		c.files(ev)
	case guest.ShellTimeout:
		c.result.Status = TimedOut
		c.files(ev)
	}
}

// files records where the container has the whole output.
func (c *Command) files(ev guest.ShellEvent) {
	for i, f := range []guest.OutputFile{ev.Stdout, ev.Stderr} {
		if f.Path != "" && c.output[i].dropped() > 0 {
			c.result.Files = append(c.result.Files, f.Path)
		}
	}
}

// show records an event of a kernel.
func (c *Command) show(e jupyter.Event) {
	if e.Type == jupyter.Result || e.Type == jupyter.Display {
		for _, media := range []string{"image/png", "image/jpeg", "image/gif"} {
			if data, ok := e.String(media); ok && c.image(media, data) {
				return
			}
		}
	}
	stream := 0
	if e.Type == jupyter.Stream && e.Name == "stderr" {
		stream = 1
	}
	c.add(stream, []byte(e.Plain()), 0)
}

// image records a picture, and reports whether the data is one.
func (c *Command) image(media, data string) bool {
	content, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(data), ""))
	if err != nil || len(content) > maxImage || http.DetectContentType(content) != media {
		return false
	}
	if len(c.result.Images) == maxImages {
		c.add(0, []byte("[an image beyond the first 8 was left out]\n"), 0)
		return true
	}
	c.result.Images = append(c.result.Images, Image{media, content})
	return true
}

func (c *Command) add(stream int, data []byte, skipped int64) {
	c.output[stream].skip(skipped)
	c.output[stream].write(data)
	if room := c.limit - len(c.shown); room > 0 {
		c.shown = append(c.shown, data[:min(room, len(data))]...)
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// Wait waits until the command has ended, or ctx ends. It calls show, which may be nil, with the start of the output
// while that arrives. The result of a command that still runs has the output so far.
func (c *Command) Wait(ctx context.Context, show func(text string)) (Result, error) {
	seen := 0
	for {
		c.mu.Lock()
		fresh, changed := c.shown[seen:], c.changed
		c.mu.Unlock()
		if show != nil && len(fresh) > 0 {
			show(strings.ToValidUTF8(string(fresh), "\ufffd"))
			seen += len(fresh)
		}
		select {
		case <-c.done:
			return c.now()
		case <-ctx.Done():
			return c.now()
		case <-changed:
		}
	}
}

// now returns the result of the command so far.
func (c *Command) now() (Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.result
	r.Stdout, r.Stderr = c.output[0].text(), c.output[1].text()
	r.Truncated = c.output[0].dropped() > 0 || c.output[1].dropped() > 0
	return r, c.err
}

// Stop ends the command, with everything that it started. It interrupts code.
func (c *Command) Stop(ctx context.Context) error {
	c.awaitAccepted(ctx) // before, a cancellation has no effect
	return c.exec.Cancel(ctx, c.ID)
}

// awaitAccepted waits until the container has the command, the command has ended, or ctx ends.
func (c *Command) awaitAccepted(ctx context.Context) {
	select {
	case <-c.accepted:
	case <-c.done:
	case <-ctx.Done():
	}
}
