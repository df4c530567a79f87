package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// doctor runs berth doctor on a state directory, with a directory of programs before the others.
func doctor(t *testing.T, programs, state string, args ...string) (out, errs string, code int) {
	t.Helper()
	cmd := exec.Command(binary(t), append([]string{"doctor", "--state", state}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "OPENAI_BASE_URL=", "OPENAI_API_KEY=",
		"ANTHROPIC_API_KEY=", "GEMINI_API_KEY=", "GOOGLE_API_KEY=")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	return stdout.String(), stderr.String(), exitCode(t, err)
}

// berth doctor names the command that provides a missing template, and runs it with --fix.
func TestDoctorFix(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("gVisor sandboxes need root")
	}
	dir := builder(t)
	state := filepath.Join(t.TempDir(), "state")
	next := "berth image build base --state " + state
	first := "mkdir -p -m 700 " + state + " && " + next
	out, _, code := doctor(t, dir, state)
	if code != 1 || !strings.HasPrefix(out, "This machine can run Berth; still missing: template.\nnext: "+first+" ") {
		t.Errorf("without a template: got %d\n%s", code, out)
	}
	if exists(state) {
		t.Error("without --fix, doctor made the state directory")
	}
	for _, name := range []string{"broken", "go"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-c", first) // finds all that it needs but the archive
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary(t))+":"+dir+":"+os.Getenv("PATH"))
	if built, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(built), "no archive") {
		t.Errorf("the printed command: got %v, %s", err, built)
	}
	if err := os.RemoveAll(state); err != nil {
		t.Fatal(err)
	}
	out, errs, code := doctor(t, dir, state, "--fix")
	if code != 1 || !strings.Contains(errs, "running: "+next) || !strings.Contains(errs, "no archive") {
		t.Errorf("a build that fails: got %d\n%s%s", code, out, errs)
	}
	if err := os.Remove(filepath.Join(dir, "broken")); err != nil {
		t.Fatal(err)
	}
	out, errs, code = doctor(t, dir, state, "--fix")
	if code != 0 || !strings.HasPrefix(out, "This machine is ready: containers start.\n") ||
		strings.Count(errs, "running: ") != 1 {
		t.Errorf("--fix: got %d\n%s%s", code, out, errs)
	}
	if out, _, code := doctor(t, dir, state); code != 0 || !strings.Contains(out, "ok    template") ||
		!strings.Contains(out, "started a sandbox") {
		t.Errorf("afterwards: got %d\n%s", code, out)
	}
}
