package bash

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/berth-run/berth/guest"
)

// An Outcome is how a process ended.
type Outcome struct {
	Stdout, Stderr string
	ExitCode       int // negative if a signal ended it
}

// killTime bounds the end of a process.
const killTime = 10 * time.Second

// Execute runs a process outside sessions, with at most limit bytes of each output. It is killed with ctx, or after the
// timeout, which is ErrTimeout; 0 is none.
func Execute(ctx context.Context, client *guest.Client, req guest.ProcessRequest, timeout time.Duration,
	limit int) (Outcome, error) {
	timed, cancel := limited(ctx, timeout)
	defer cancel()
	out, code, err := capture(timed, client, req, limit)
	if timed.Err() != nil && ctx.Err() == nil {
		return Outcome{}, ErrTimeout
	}
	if err != nil {
		return Outcome{}, err
	}
	out.ExitCode = code
	return out, nil
}

// capture runs a process to its end.
func capture(ctx context.Context, client *guest.Client, req guest.ProcessRequest, limit int) (out Outcome, code int,
	err error) {
	// The stream of the process must outlive ctx, to see the process end.
	p, err := client.Start(context.WithoutCancel(ctx), req)
	if err != nil {
		return out, 0, fmt.Errorf("start a process: %w", err)
	}
	stop := context.AfterFunc(ctx, func() {
		killing, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
		defer cancel()
		_ = p.Kill(killing) // an error means that it has ended, or the sandbox has
	})
	defer stop()
	var stdout, stderr bounded
	stdout.rest, stderr.rest = limit, limit
	for ev, err := range p.Events() {
		if err != nil {
			return out, 0, fmt.Errorf("run a process: %w", err)
		}
		if ev.Ended {
			return Outcome{Stdout: stdout.text.String(), Stderr: stderr.text.String()}, ev.ExitCode, context.Cause(ctx)
		}
		stdout.add(ev.Stdout)
		stderr.add(ev.Stderr)
	}
	return out, 0, errors.New("run a process: no end")
}

// bounded is the start of an output.
type bounded struct {
	text strings.Builder
	rest int // bytes that it still takes
}

func (b *bounded) add(data []byte) {
	n := min(len(data), b.rest)
	b.text.Write(data[:n])
	b.rest -= n
}
