// Package javascript runs programs that a model wrote, which it does not trust. A program
// runs in an interpreter without input and output, in a child process that has given up its
// privileges and whose memory and time are bounded. All it can do is compute and make calls,
// which the Session returns.
//
// A program that gets the same answers makes the same calls: its clock does not advance and its
// random numbers have a seed. It can therefore be run again up to where it was.
package javascript

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Command is the first argument with which a program runs Main.
const Command = "run-program"

// Limits of a child.
const (
	maxStep = time.Minute
	maxLine = 16 << 20 // bytes of the calls of a round, or of a result
	// MaxCalls is the number of calls that a program may make.
	MaxCalls = 1000
	// DefaultCPU is the number of seconds that a program may compute.
	DefaultCPU = 5
)

// maxIdle is the number of children that wait for answers. Further ones are ended and
// started again when the answers are there.
const maxIdle = 16

// Exit statuses of a child.
const exitUnlocked = 4 // it could not give up its privileges, and has run nothing

// A Program is code with what its record fixes.
type Program struct {
	Code string `json:"code"`
	Time int64  `json:"time"` // of its clock, in milliseconds since 1970
	Seed uint64 `json:"seed"` // of its random numbers
}

// A Call is a call of a tool by a program.
type Call struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON
}

// An Answer is the result of a call: a value, or the reason why there is none.
type Answer struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
}

// A Step is what a program did between two rounds of answers: calls, or its result.
type Step struct {
	Calls  []Call  `json:"calls,omitempty"`
	Result *Result `json:"result,omitempty"`
}

// A Result is what a program has written, and the reason why it failed, if it did.
type Result struct {
	Text  string `json:"text"`
	Error string `json:"error,omitempty"`
}

// A Runner starts children. It is safe for concurrent use.
type Runner struct {
	path      string
	cpu       int // seconds
	computing chan struct{}
	idle      atomic.Int32
}

// NewRunner returns a Runner whose programs may compute for a number of seconds. Its children
// are this program, which must call Main.
func NewRunner(cpu int) *Runner {
	return &Runner{path: "/proc/self/exe", cpu: cpu, computing: make(chan struct{}, max(2, runtime.NumCPU()))}
}

// A Session is a program that runs. It is for one goroutine.
type Session struct {
	runner  *Runner
	program Program
	rounds  [][]Answer // so far, for a child that is started again
	child   *child     // nil before the first step, and when too many wait
	ended   bool
}

// Start returns a Session at the start of a program.
func (r *Runner) Start(p Program) *Session { return &Session{runner: r, program: p} }

// Step runs the program until it needs further answers, or has ended. answers are those of
// the calls that the last Step returned, in their order. A program that fails has a Result.
// An error means that programs cannot be run here, or that ctx has ended.
func (s *Session) Step(ctx context.Context, answers []Answer) (Step, error) {
	select {
	case s.runner.computing <- struct{}{}:
		defer func() { <-s.runner.computing }()
	case <-ctx.Done():
		return Step{}, context.Cause(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, maxStep)
	defer cancel()
	step, err := s.step(limited, answers)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.Close()
		return Step{}, err
	}
	if step.Result != nil {
		s.Close()
		return step, nil
	}
	if s.runner.idle.Add(1) > maxIdle {
		s.runner.idle.Add(-1)
		s.child.end()
		s.child = nil
	} else {
		s.child.idle = true
	}
	return step, nil
}

func (s *Session) step(ctx context.Context, answers []Answer) (Step, error) {
	if s.ended {
		return Step{}, errors.New("the program has ended")
	}
	first := len(s.rounds) == 0 && answers == nil
	if !first {
		s.rounds = append(s.rounds, answers)
	}
	if s.child != nil {
		s.wake()
		return s.child.exchange(ctx, answers)
	}
	var err error
	if s.child, err = startChild(s.runner.path, s.runner.cpu); err != nil {
		return Step{}, err
	}
	step, err := s.child.exchange(ctx, s.program)
	for _, round := range s.rounds {
		if err != nil || step.Result != nil {
			break
		}
		step, err = s.child.exchange(ctx, round)
	}
	return step, err
}

func (s *Session) wake() {
	if s.child.idle {
		s.child.idle = false
		s.runner.idle.Add(-1)
	}
}

// Close ends the program's process. It may be called more than once.
func (s *Session) Close() {
	s.ended = true
	if s.child == nil {
		return
	}
	s.wake()
	s.child.end()
	s.child = nil
}

// A child is a process that runs one program.
type child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	failure *tail
	idle    bool
	cpu     int // seconds
}

func startChild(path string, cpu int) (*child, error) {
	c := &child{cpu: cpu, cmd: exec.Command(path, Command, strconv.Itoa(cpu)), failure: &tail{}}
	c.cmd.Env = []string{fmt.Sprintf("GOMEMLIMIT=%d", maxMemory*3/4), "GOMAXPROCS=1", "TZ=UTC"}
	c.cmd.Dir = "/"
	c.cmd.Stderr = c.failure
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start interpreter: %w", err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start interpreter: %w", err)
	}
	c.in, c.out = in, bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start interpreter: %w", err)
	}
	return c, nil
}

// exchange sends a line to the child and returns its answer. A child that dies has a Result.
func (c *child) exchange(ctx context.Context, line any) (Step, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })
	defer stop()
	raw, err := json.Marshal(line)
	if err != nil {
		return Step{}, fmt.Errorf("encode answers: %w", err)
	}
	if _, err := c.in.Write(append(raw, '\n')); err != nil {
		return c.died(ctx)
	}
	answer, err := readLine(c.out)
	if err != nil {
		return c.died(ctx)
	}
	var step Step
	if err := json.Unmarshal(answer, &step); err != nil || step.Result == nil && len(step.Calls) == 0 {
		return Step{}, errors.New("the interpreter sent an answer that is not valid")
	}
	return step, nil
}

// readLine reads a line of at most maxLine bytes.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, errors.New("line too long")
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// died returns the result of a program whose child has ended.
func (c *child) died(ctx context.Context) (Step, error) {
	c.end()
	said, state := c.failure.String(), c.cmd.ProcessState
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return Step{}, context.Cause(ctx)
	case state.ExitCode() == exitUnlocked:
		return Step{}, fmt.Errorf("start interpreter: %s", strings.TrimSpace(said))
	case ctx.Err() != nil:
		return failed("The program did not end within %s and was stopped.", maxStep), nil
	case state.UserTime()+state.SystemTime() >= time.Duration(c.cpu)*time.Second:
		return failed(tooLong, c.cpu), nil
	case strings.Contains(said, "stack overflow") || strings.Contains(said, "stack exceeds"):
		return failed("The program's functions call each other too deeply."), nil
	}
	return failed("The program was stopped: it needs more than the %d MB of memory that it may use.",
		maxMemory>>20), nil
}

// tooLong is the reason of a program that was stopped after a number of seconds.
const tooLong = "The program computed for more than %d seconds and was stopped."

func failed(format string, args ...any) Step {
	return Step{Result: &Result{Error: fmt.Sprintf(format, args...)}}
}

func (c *child) end() {
	_ = c.in.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// A tail holds the first bytes that are written to it, in which Go names a fatal error.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	t.Buffer.Write(p[:min(len(p), 4<<10-t.Len())])
	return len(p), nil
}
