package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/clock"
)

// A Status is the state of a process.
type Status string

// States of a process.
const (
	Running Status = "running"
	Done    Status = "done"
	Killed  Status = "killed"
)

// stopGrace is how long a process has to end after SIGTERM, and what it started has after that.
const stopGrace = 3 * time.Second

// ErrEnded means that a process has ended.
var ErrEnded = errors.New("the process has ended")

// ErrConnected means that another client is connected to a terminal.
var ErrConnected = errors.New("another client is connected to the terminal")

// A Process is a process of an owner.
type Process struct {
	ID        string
	Owner     Owner
	Command   string
	Shell     bool
	CreatedAt time.Time

	service  *Service
	handle   Handle        // set before any client knows the process
	interest *clock.Timer  // until the container may sleep
	done     chan struct{} // closed at the end

	mu       sync.Mutex
	status   Status
	exitCode *int
	output   []string
	first    int // index of the first entry that is kept
	size     int
	rest     []byte // the start of a character whose end has not arrived
	sink     func([]byte)
}

// Status returns the state of the process.
func (p *Process) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// A Snapshot is the state and the output of a process so far.
type Snapshot struct {
	Status    Status
	ExitCode  *int // negative if a signal ended it
	Output    []string
	Next      int  // index of the next entry
	Truncated bool // entries at or after the offset are left out
}

// Read returns the state of the process and its output from an offset on, at most the last tail entries; 0 is all.
func (p *Process) Read(offset, tail int) Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.first + len(p.output)
	from := min(max(offset, p.first), next)
	cut := offset < p.first
	if tail > 0 && next-from > tail {
		from, cut = next-tail, true
	}
	return Snapshot{Status: p.status, ExitCode: p.exitCode, Next: next, Truncated: cut,
		Output: append([]string{}, p.output[from-p.first:]...)}
}

// Wait waits until the process has ended or ctx has.
func (p *Process) Wait(ctx context.Context) {
	select {
	case <-p.done:
	case <-ctx.Done():
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// touch keeps the container awake for a while.
func (p *Process) touch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status == Running && p.interest != nil {
		p.interest.Reset(p.service.Interest)
	}
}

// Write sends the process input.
func (p *Process) Write(ctx context.Context, data []byte) error {
	if p.Status() != Running {
		return ErrEnded
	}
	if err := p.handle.Write(ctx, data); err != nil {
		return fmt.Errorf("write to process: %w", err)
	}
	return nil
}

// Resize sets the size of the process's terminal.
func (p *Process) Resize(ctx context.Context, size guest.Size) error {
	if err := p.handle.Resize(ctx, size); err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	return nil
}

// Kill ends the process with everything that it started, after a while for SIGTERM unless it is forced. It returns when
// the process has ended.
func (p *Process) Kill(ctx context.Context, force bool) error {
	p.mu.Lock()
	if p.status != Running {
		p.mu.Unlock()
		return nil
	}
	p.status = Killed
	p.mu.Unlock()
	ctx, cancel := p.service.Clock.WithTimeout(context.WithoutCancel(ctx), 4*stopGrace)
	defer cancel()
	if !force && p.handle.Terminate(ctx) == nil {
		wait, stop := p.service.Clock.WithTimeout(ctx, stopGrace)
		p.Wait(wait)
		stop()
	}
	if p.ended() {
		return nil
	}
	if err := p.handle.Kill(ctx); err != nil && !p.ended() {
		return fmt.Errorf("kill process: %w", err)
	}
	p.Wait(ctx)
	return nil
}

func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Connect has a terminal's output passed on to sink, beginning with the last output, until leave is called. sink may
// block, which holds up the terminal.
func (p *Process) Connect(sink func([]byte)) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sink != nil {
		return nil, ErrConnected
	}
	p.sink = sink
	sink([]byte(strings.Join(p.output, "")))
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sink = nil
	}, nil
}

// Connected reports whether a client is connected to the terminal.
func (p *Process) Connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sink != nil && p.status == Running
}

// follow reads the output until the process has ended.
func (p *Process) follow() {
	code := -1
	for ev, err := range p.handle.Events() {
		if err != nil {
			p.service.Log.Debug("lost a process", "container", p.Owner.Container, "process", p.ID, "err", err)
			break
		}
		p.add(append(ev.Stdout, ev.Stderr...))
		if ev.Ended {
			code = exitCode(ev)
		}
	}
	p.mu.Lock()
	p.add1(strings.ToValidUTF8(string(p.rest), "\ufffd"))
	p.exitCode = &code
	if p.status == Running {
		p.status = Done
	}
	p.interest.Stop()
	p.mu.Unlock()
	close(p.done)
	if p.Shell {
		p.service.forget(p)
		return
	}
	p.service.Clock.AfterFunc(p.service.Keep, func() { p.service.forget(p) })
}

// signals are the numbers of the signals that end processes, as the guest names them.
var signals = map[string]int{"hangup": 1, "interrupt": 2, "quit": 3, "illegal instruction": 4, "aborted": 6,
	"bus error": 7, "floating point exception": 8, "killed": 9, "segmentation fault": 11, "broken pipe": 13,
	"alarm clock": 14, "terminated": 15}

// exitCode returns the exit code of a process, or the negative number of the signal that ended it.
func exitCode(ev guest.ProcessEvent) int {
	name, _, _ := strings.Cut(strings.TrimPrefix(ev.Status, "signal: "), " (")
	if n := signals[name]; n > 0 && ev.ExitCode < 0 {
		return -n
	}
	return ev.ExitCode
}

// add adds output to that of the process. A character that is cut waits for its end.
func (p *Process) add(data []byte) {
	if len(data) == 0 {
		return
	}
	p.mu.Lock()
	sink := p.sink
	data = append(p.rest, data...)
	p.rest = nil
	if p.sink == nil || !p.Shell {
		for cut := 1; cut < utf8.UTFMax && cut <= len(data); cut++ {
			tail := data[len(data)-cut:]
			if utf8.RuneStart(tail[0]) && !utf8.FullRune(tail) {
				p.rest, data = append([]byte{}, tail...), data[:len(data)-cut]
				break
			}
		}
	}
	p.add1(strings.ToValidUTF8(string(data), "\ufffd"))
	p.mu.Unlock()
	if sink != nil {
		sink(data)
	}
}

// add1 adds an entry, and drops the oldest ones above the limit. The caller holds mu.
func (p *Process) add1(text string) {
	const overhead = 64 // of an entry
	limit := p.service.Output
	if p.Shell {
		limit = min(limit, 64<<10)
	}
	for len(text) > 0 {
		n := min(len(text), limit/2)
		for n < len(text) && n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		p.output = append(p.output, text[:n])
		p.size += n + overhead
		text = text[n:]
	}
	drop := 0
	for p.size > limit && drop < len(p.output)-1 {
		p.size -= len(p.output[drop]) + overhead
		drop++
	}
	if drop > 0 {
		p.output = append([]string{}, p.output[drop:]...)
		p.first += drop
	}
}
