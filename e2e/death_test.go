package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// sandboxProcess returns the process that is a container's sandbox on this machine.
func sandboxProcess(t *testing.T, id string) int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		args := bytes.Split(bytes.TrimRight(line, "\x00"), []byte{0})
		if bytes.Contains(args[0], []byte("runsc-sandbox")) && bytes.Contains(line, []byte(id)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("no sandbox of %s runs here", id)
	return 0
}

// TestDeaths kills containers, one while the server runs and one while it does not, and
// reads why they ended wherever a client can.
func TestDeaths(t *testing.T) {
	s := newServer(t)
	p := &planted{server: s}
	killed, alone := p.create("/containers", `{"name":"killed"}`), p.create("/containers", `{"name":"alone"}`)
	for _, id := range []string{killed, alone} {
		p.shell(id, "true")
	}
	if err := syscall.Kill(sandboxProcess(t, killed), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended := func(id string) bool {
		return strings.Contains(p.call("GET", "/containers/"+id, ""), `"status":"expired"`)
	}
	s.waitUntil("the server knows that a sandbox was killed", func() bool { return ended(killed) })
	s.kill()
	if err := syscall.Kill(sandboxProcess(t, alone), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.start()
	s.waitUntil("the server knows that the other was killed", func() bool { return ended(alone) })
	ps, errs, err := s.berth("ps", "-a", "--no-trunc")
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	record, errs, err := s.berth("audit", "log", "--state", s.state)
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	for _, id := range []string{killed, alone} {
		p.want("the container", p.call("GET", "/containers/"+id, ""), `"reason":"killed"`)
		if !hasLine(ps, id, "killed") {
			t.Errorf("berth ps -a does not have the reason of the end of %s:\n%s", id, ps)
		}
		if !hasLine(record, "container.ended", id, "reason=killed") || strings.Count(record, "container.ended") != 2 {
			t.Errorf("the record does not have the reason of the end of %s once:\n%s", id, record)
		}
		if got := fetch(t, s.url+"/v1/containers/"+id+"/archive?path=x"); !strings.Contains(got, "container_expired") ||
			!strings.Contains(got, "was killed") {
			t.Errorf("the files of %s: got %.300s", id, got)
		}
	}
}
