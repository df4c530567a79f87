package bash

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// Prompt is the prompt of the shells.
const Prompt = "SHELLPS1PREFIX"

// setPrompt sets the prompt. The terminal may echo it, so it does not contain the prompt itself.
const setPrompt = `export PS1="SHELL""PS1PREFIX"`

// maxLine is what a terminal takes as one line.
const maxLine = 4000

// A session is a shell.
type session struct {
	handle Handle
	limit  int
	turn   chan struct{} // holds one element while a command runs
	done   chan struct{} // closed at the end of the shell

	mu      sync.Mutex
	out     []byte
	dropped int           // bytes that were in out before it
	changed chan struct{} // closed when out changes
}

// start starts a shell and waits for its prompt.
func (s *Service) start(ctx context.Context, b Box, sources []string) (*session, string, error) {
	handle, err := s.Start(context.WithoutCancel(ctx), b.Caller, b.Container, guest.ProcessRequest{Cmd: "bash",
		Args: []string{"--noediting"}, Env: map[string]string{"TERM": "dumb"}, TTY: &guest.Size{Cols: 1000, Rows: 24},
		In: true})
	if err != nil {
		return nil, "", fmt.Errorf("start a shell: %w", err)
	}
	handle.Release() // each request holds the container while it lasts
	one := &session{handle: handle, limit: s.Output, turn: make(chan struct{}, 1), done: make(chan struct{}),
		changed: make(chan struct{})}
	go one.follow()
	output, err := one.prepare(ctx, b.Guest, sources)
	if err != nil {
		_ = handle.Kill(context.WithoutCancel(ctx))
		return nil, "", err
	}
	return one, output, nil
}

// silence turns off the terminal's echo, and sets the prompt. Its line, which may be echoed, does not contain what it
// prints.
func (o *session) silence(ctx context.Context) error {
	nonce := newNonce()
	line := "stty -echo; " + setPrompt + fmt.Sprintf(` PS2= PS0= PROMPT_COMMAND=; printf '\n%%s%%s\n' %s %s`,
		nonce[:8], nonce[8:])
	if err := o.write(ctx, line); err != nil {
		return err
	}
	if _, _, err := o.expect(ctx, []string{nonce}); err != nil {
		return err
	}
	_, _, err := o.expect(ctx, []string{Prompt})
	return err
}

func (o *session) prepare(ctx context.Context, client *guest.Client, sources []string) (string, error) {
	if err := o.silence(ctx); err != nil || len(sources) == 0 {
		return "", err
	}
	var script strings.Builder
	for _, path := range sources {
		fmt.Fprintf(&script, "source '%s'\n", strings.ReplaceAll(path, "'", `'\''`))
	}
	r, err := o.command(ctx, client, Command{Text: script.String()})
	if err != nil {
		return "", err
	}
	return r.Output, o.silence(ctx) // they often set the prompt
}

// follow collects the output until the shell ends.
func (o *session) follow() {
	for ev, err := range o.handle.Events() {
		if err != nil || ev.Ended {
			break
		}
		o.mu.Lock()
		o.out = append(o.out, ev.Stdout...)
		if over := len(o.out) - 2*o.limit; over > 0 {
			o.drop(over + o.limit)
		}
		close(o.changed)
		o.changed = make(chan struct{})
		o.mu.Unlock()
	}
	close(o.done)
}

// drop removes the first bytes of the output. The caller holds mu.
func (o *session) drop(n int) {
	o.out = slices.Delete(o.out, 0, n)
	o.dropped += n
}

func (o *session) ended() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// write sends a line to the terminal.
func (o *session) write(ctx context.Context, line string) error {
	if len(line) > maxLine {
		return ErrTooLong
	}
	return o.send(ctx, line+"\n")
}

func (o *session) send(ctx context.Context, text string) error {
	if err := o.handle.Write(ctx, []byte(text)); err != nil {
		if o.ended() {
			return ErrEnded
		}
		return fmt.Errorf("write to the shell: %w", err)
	}
	return nil
}

// expect waits for the first of some texts in the output. It returns the output before it, which it removes, and which
// text it was.
func (o *session) expect(ctx context.Context, words []string) (before string, which string, err error) {
	longest := 0
	for _, word := range words {
		longest = max(longest, len(word))
	}
	searched := 0 // the end of what was searched, among all output of the session: output is searched once
	for {
		ended := o.ended() // before the last output is read
		o.mu.Lock()
		at, from := -1, max(0, searched-o.dropped-longest+1)
		for _, word := range words {
			if i := bytes.Index(o.out[from:], []byte(word)); i >= 0 && (at < 0 || from+i < at) {
				at, which = from+i, word
			}
		}
		if at >= 0 {
			before = plain(string(o.out[:at]))
			o.drop(at + len(which))
			o.mu.Unlock()
			return before, which, nil
		}
		searched = o.dropped + len(o.out)
		changed := o.changed
		o.mu.Unlock()
		if ended {
			return "", "", ErrEnded
		}
		select {
		case <-changed:
		case <-o.done:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return "", "", ErrTimeout
			}
			return "", "", context.Cause(ctx)
		}
	}
}

var (
	control = regexp.MustCompile(`\x1B[@-_][0-?]*[ -/]*[@-~]`)
	stale   = regexp.MustCompile(`\n?berth-[0-9a-f]{32}:\d+:\n`) // the end of a command that a client did not wait for
)

// plain removes the codes for terminals and the marks of this package.
func plain(text string) string {
	text = strings.ReplaceAll(control.ReplaceAllString(text, ""), "\r\n", "\n")
	text = strings.ReplaceAll(stale.ReplaceAllString(text, ""), Prompt, "")
	return strings.ToValidUTF8(text, "\ufffd")
}

func newNonce() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails
	return "berth-" + hex.EncodeToString(raw[:])
}

// A Command is what a session runs.
type Command struct {
	Text    string
	Timeout time.Duration // 0 is none
	Expect  []string      // texts in the output that end the wait, too

	Interactive bool // it starts a program with a prompt of its own, which is expected
	Quit        bool // it ends such a program
}

// A Result is what a command printed.
type Result struct {
	Output   string
	ExitCode *int // nil if the command still runs, or is interactive
	Matched  string
}

// Run runs a command in a session.
func (s *Service) Run(ctx context.Context, b Box, name string, c Command) (Result, error) {
	one, err := s.find(b.Container, name)
	if err != nil {
		return Result{}, err
	}
	leave, err := one.enter(ctx)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	if c.Interactive || c.Quit {
		return one.interact(ctx, c)
	}
	return one.command(ctx, b.Guest, c)
}

// enter waits until no other command of this server runs in the session.
func (o *session) enter(ctx context.Context) (leave func(), err error) {
	select {
	case o.turn <- struct{}{}:
		return func() { <-o.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func limited(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

// command runs a command and waits for its exit code. The command is in a file: a terminal takes short lines only.
func (o *session) command(ctx context.Context, client *guest.Client, c Command) (Result, error) {
	nonce := newNonce()
	file := "/tmp/." + nonce
	if err := client.WriteFile(ctx, "", file, "", strings.NewReader(c.Text)); err != nil {
		return Result{}, fmt.Errorf("write the command: %w", err)
	}
	if err := parse(ctx, client, file); err != nil {
		return Result{}, err
	}
	timed, cancel := limited(ctx, c.Timeout)
	defer cancel()
	line := fmt.Sprintf(`eval "$(cat %s; rm -f %s)"; printf '\n%%s%%s:%%s:\n' %s %s "$?"; `, file, file, nonce[:8],
		nonce[8:]) + setPrompt
	if err := o.write(timed, line); err != nil {
		return Result{}, err
	}
	mark := "\r\n" + nonce + ":"
	output, which, err := o.expect(timed, append(slices.Clone(c.Expect), mark))
	if err != nil {
		return Result{}, err
	}
	if which != mark {
		return Result{Output: output, Matched: which}, nil
	}
	text, _, err := o.expect(ctx, []string{":\r\n"})
	if err != nil {
		return Result{}, err
	}
	code, err := strconv.Atoi(text)
	if err != nil {
		return Result{}, fmt.Errorf("the shell reported the exit code %q", text)
	}
	if _, _, err := o.expect(ctx, []string{Prompt}); err != nil && !errors.Is(err, ErrEnded) {
		return Result{}, err
	}
	return Result{Output: output, ExitCode: &code, Matched: Prompt}, nil
}

// parse returns a SyntaxError if the shell cannot parse a file, which it removes then.
func parse(ctx context.Context, client *guest.Client, file string) error {
	out, code, err := capture(ctx, client, guest.ProcessRequest{Cmd: "/bin/sh",
		Args: []string{"-c", `bash -n "$1" 2>&1 || { rm -f "$1"; exit 1; }`, "sh", file}}, 64<<10)
	if err != nil {
		return err
	}
	if code != 0 {
		return &SyntaxError{strings.ReplaceAll(out.Stdout, file, "bash")}
	}
	return nil
}

// interact sends a line to what runs in the session, and waits for a prompt.
func (o *session) interact(ctx context.Context, c Command) (Result, error) {
	timed, cancel := limited(ctx, c.Timeout)
	defer cancel()
	if err := o.write(timed, c.Text); err != nil {
		return Result{}, err
	}
	output, which, err := o.expect(timed, append(slices.Clone(c.Expect), Prompt))
	if err != nil {
		return Result{}, err
	}
	zero := 0
	if c.Quit {
		return Result{output, &zero, which}, o.silence(timed) // programs often turn the echo on
	}
	output = strings.TrimSpace(strings.TrimPrefix(strings.TrimLeft(output, " \r\n\t"), c.Text))
	return Result{output, &zero, which}, nil
}

// discard ends the line that the shell reads, if it is the shell: gVisor's terminals also put the Ctrl-C into it.
func (o *session) discard(ctx context.Context, matched string) error {
	if matched != Prompt {
		return nil
	}
	if err := o.write(ctx, ""); err != nil {
		return err
	}
	return o.silence(ctx)
}

// Interrupt sends Ctrl-C until a prompt or an expected text comes, and stops and kills the job if none does.
func (s *Service) Interrupt(ctx context.Context, id berth.ContainerID, name string, tries int, each time.Duration,
	expect []string) (Result, error) {
	one, err := s.find(id, name)
	if err != nil {
		return Result{}, err
	}
	leave, err := one.enter(ctx)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	words := append(slices.Clone(expect), Prompt)
	zero := 0
	for _, keys := range append(slices.Repeat([]string{"\x03"}, max(1, min(tries, 10))), "\x1a", "kill -9 %1\n") {
		if err := one.send(ctx, keys); err != nil {
			return Result{}, err
		}
		timed, cancel := limited(ctx, max(each, 100*time.Millisecond))
		output, which, err := one.expect(timed, words)
		cancel()
		switch {
		case err == nil && keys != "\x1a":
			return Result{strings.TrimSpace(output), &zero, which}, one.discard(ctx, which)
		case err != nil && !errors.Is(err, ErrTimeout):
			return Result{}, err
		}
	}
	return Result{}, ErrTimeout
}
