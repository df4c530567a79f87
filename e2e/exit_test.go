package e2e

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// exitCode returns the exit code of a command of the command line.
func exitCode(t *testing.T, err error) int {
	t.Helper()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if err != nil && !ok {
		t.Fatal(err)
	}
	if !ok {
		return 0
	}
	return exit.ExitCode()
}

// berth exec and berth logs show why a command did not start as shells do: 127, or 126.
func TestExitCodes(t *testing.T) {
	s := newServer(t)
	id, errs, err := s.berth("create")
	if err != nil {
		t.Fatal(err, errs)
	}
	id = strings.TrimSpace(id)
	if _, errs, err := s.berth("exec", id, "sh", "-c", "echo '#!/bin/sh' >/mnt/data/plain"); err != nil {
		t.Fatal(err, errs)
	}
	for _, c := range []struct {
		args []string
		code int
		log  string
	}{
		{[]string{id, "nosuchcommand"}, 127, "exit 127"},
		{[]string{id, "/no/such/command"}, 127, "exit 127"},
		{[]string{id, "/mnt/data/plain"}, 126, "exit 126"},
		{[]string{"-w", "/no/such/folder", id, "true"}, 126, "exit 126"},
		{[]string{id, "sh", "-c", "exit 5"}, 5, "exit 5"},
	} {
		_, errs, err := s.berth(append([]string{"exec"}, c.args...)...)
		if got := exitCode(t, err); got != c.code {
			t.Errorf("%q: got %d, want %d: %s", c.args, got, c.code, errs)
		}
		out, errs, err := s.berth("logs", "-n", "1", id)
		if head, _, _ := strings.Cut(out, "\n"); err != nil || !strings.Contains(head, c.log) {
			t.Errorf("%q: the log has %q, want %s: %v %s", c.args, out, c.log, err, errs)
		}
		if c.code >= 126 && !strings.Contains(out, strings.TrimPrefix(strings.TrimSpace(lastLine(errs)), "berth: ")) {
			t.Errorf("%q: the log has %q, not the reason", c.args, out)
		}
	}
}

// An interrupted berth run exits with 130, and shows what to look at and how to go on.
func TestRunInterrupted(t *testing.T) {
	s := newServer(t)
	cmd := exec.Command(binary(t), "run", "--model", "scripted", fence("echo begun; sleep 600"))
	cmd.Env = append(os.Environ(), "BERTH_URL="+s.url, "BERTH_API_KEY="+s.key)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = cmd.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), "begun\n") {
		n, err := out.Read(buf)
		if seen.Write(buf[:n]); err != nil {
			t.Fatalf("%v after %q", err, seen.String())
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, cmd.Wait()); code != 130 {
		t.Errorf("got exit code %d, want 130", code)
	}
	if text := string(rest); !strings.Contains(text, "interrupted; the response is cancelled") ||
		!strings.Contains(text, "resp_") || !strings.Contains(text, "cntr_") || !strings.Contains(text,
		"to go on: berth run --previous resp_") {
		t.Errorf("got %q", text)
	}
}
