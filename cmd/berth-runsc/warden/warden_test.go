package warden

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain also runs this program as the warden and as its runsc. That runsc leaves a shell as the sentry,
// in its own user namespace, with memory on descriptor 3 and a script to run.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == Command:
		os.Exit(Main(os.Args[2:]))
	case len(os.Args) > 2 && os.Args[1] == "runsc":
		if err := runsc(os.Args[2]); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runsc(script string) error {
	if script == "" {
		return errors.New("nothing to run")
	}
	fd, err := unix.MemfdCreate("runsc-memory", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(fd), "memory")}
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	same := []syscall.SysProcIDMap{{Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: same, GidMappings: same}
	if err := cmd.Start(); err != nil {
		return err
	}
	return os.WriteFile(pidName, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
}

// otherUser is an ordinary user for tests that root runs: root's processes are not limited in number.
const otherUser = 54321

// A sandbox is a sandbox with a warden.
type sandbox struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	status string
	done   chan struct{} // closed when the warden has ended
}

// guarded starts a warden with a sandbox that runs a script.
func guarded(t *testing.T, script string, flags ...string) *sandbox {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "warden-") // a directory that other users can reach
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "program")
	raw, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(program, raw, 0o755), os.Mkdir(filepath.Join(dir, runDir), 0o700),
		unix.Mkfifo(filepath.Join(dir, "alive"), 0o600)); err != nil {
		t.Fatal(err)
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = otherUser, otherUser
		for _, name := range []string{"", runDir, "alive"} {
			if err := os.Chown(filepath.Join(dir, name), uid, gid); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	s := &sandbox{t: t, dir: dir, done: make(chan struct{})}
	s.cmd = exec.Command(program, append(append([]string{Command}, flags...), "runsc", script)...)
	s.cmd.Dir, s.cmd.Env, s.cmd.ExtraFiles, s.cmd.Stderr = dir, []string{}, []*os.File{w, self}, os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}},
		Credential:  &syscall.Credential{NoSetGroups: true}}
	err = s.cmd.Start()
	w.Close()
	if err != nil {
		t.Skipf("skipped: no user namespaces: %v", err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
	})
	text, err := io.ReadAll(r)
	r.Close()
	if err != nil {
		t.Fatal(err)
	}
	if s.status = string(text); strings.Contains(s.status, "no part may be hidden") {
		t.Skipf("skipped: %s", s.status)
	}
	return s
}

// started is like guarded, but requires the sandbox to start.
func started(t *testing.T, script string, flags ...string) *sandbox {
	t.Helper()
	s := guarded(t, script, flags...)
	if s.status != "started" {
		t.Fatalf("the warden reports %q", s.status)
	}
	return s
}

func (s *sandbox) path(name string) string { return filepath.Join(s.dir, name) }

// end waits for the warden to end and returns its End.
func (s *sandbox) end() (e End) {
	s.t.Helper()
	s.gone()
	raw, err := os.ReadFile(s.path(endName))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		s.t.Fatal(err)
	}
	return e
}

func (s *sandbox) gone() {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(30 * time.Second):
		s.t.Fatal("the warden is still alive")
	}
}

// ask sends a request to the warden.
func (s *sandbox) ask(r Request) (reply Reply) {
	s.t.Helper()
	conn, err := net.Dial("unix", s.path(socketName))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		s.t.Fatal(err)
	}
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		s.t.Fatal(err)
	}
	return reply
}

// alive opens a pipe that reaches EOF when all processes holding its other end have ended.
func (s *sandbox) alive() *os.File {
	s.t.Helper()
	f, err := os.OpenFile(s.path("alive"), os.O_RDONLY, 0) // returns when a process opens the other end
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { f.Close() })
	return f
}

// ended waits until no process holds the pipe.
func (s *sandbox) ended(alive *os.File) {
	s.t.Helper()
	if err := alive.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.ReadAll(alive); err != nil {
		s.t.Errorf("a process of the sandbox is still alive: %v", err)
	}
}

// orphan starts a process that leaves its parents and their session and is no longer the sentry's child.
// The rest of the script runs when the test has opened the pipe.
const orphan = `(setsid sh -c 'exec 8>alive; : >opened; exec sleep 1000' &); until [ -e opened ]; do sleep 0.01; done; `

// TestMemory checks that a sandbox ends when it exceeds its memory limit, in its memory file or beside it.
func TestMemory(t *testing.T) {
	const limit = 64 << 20
	for name, script := range map[string]string{"File": orphan + "head -c 1G /dev/zero >&3; sleep 1000", "Own": orphan +
		"exec tail /dev/zero"} {
		t.Run(name, func(t *testing.T) {
			s := started(t, script, "-memory", strconv.Itoa(limit), "-pids", "100")
			alive := s.alive()
			if e := s.end(); !e.OOM || e.Peak <= limit || e.Peak > 8*limit {
				t.Errorf("got %+v, want OOM", e)
			}
			s.ended(alive)
		})
	}
}

// TestMemoryWithin checks that a sandbox within its limit continues.
func TestMemoryWithin(t *testing.T) {
	s := started(t, "head -c 8M /dev/zero >&3; exec sleep 1000 >alive", "-memory", strconv.Itoa(256<<20), "-pids",
		"100")
	alive := s.alive()
	u := s.ask(Request{})
	if u.Memory < 8<<20 || u.Memory > 64<<20 || u.PIDs != 1 || u.Failed {
		t.Errorf("got %+v, want the sandbox's 8 MB and its process", u)
	}
	if err := syscall.Kill(s.cmd.Process.Pid, 0); err != nil {
		t.Fatal(err)
	}
	s.cmd.Process.Kill()
	s.ended(alive)
}

// TestPIDs checks the process limit.
func TestPIDs(t *testing.T) {
	const most = 40
	s := started(t,
		`(i=0; while [ $i -lt 500 ]; do sleep 1000 & i=$((i+1)); echo $i >count; done); : >full; exec sleep 1000 >alive`,
		"-pids", strconv.Itoa(most))
	s.alive()
	u := s.ask(Request{})
	raw, err := os.ReadFile(s.path("count"))
	if err != nil {
		t.Fatal(err)
	}
	// The warden's own threads are included.
	n, _ := strconv.Atoi(strings.TrimSpace(string(raw)))
	if n < 5 || n >= most || u.PIDs < n || u.PIDs > most {
		t.Errorf("%d processes created, usage %+v, want fewer than %d", n, u.Usage, most)
	}
	if _, err := os.Stat(s.path("full")); err != nil {
		t.Error(err)
	}
}

// TestEscape checks that a process that left the sentry's family and session ends with the sandbox, even
// if the sentry exits by itself.
func TestEscape(t *testing.T) {
	s := started(t, orphan+"until [ -e go ]; do sleep 0.01; done", "-pids", "100")
	alive := s.alive()
	if u := s.ask(Request{}); u.PIDs < 2 {
		t.Errorf("got %+v, want the orphan counted", u)
	}
	if err := os.WriteFile(s.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if e := s.end(); e.OOM {
		t.Errorf("got %+v, want a regular end", e)
	}
	s.ended(alive)
}

// TestWardenKilled checks that killing the warden ends all processes and leaves no End.
func TestWardenKilled(t *testing.T) {
	s := started(t, orphan+"exec sleep 1000 >alive", "-pids", "100")
	alive := s.alive()
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.gone()
	s.ended(alive)
	if _, err := os.Stat(s.path(endName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: got %v, want none", endName, err)
	}
	lock, err := os.OpenFile(s.path(lockName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	held := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(lock.Fd(), unix.F_GETLK, &held); err != nil || held.Type != unix.F_UNLCK {
		t.Errorf("its lock: got %+v, %v, want it released", held, err)
	}
}

// TestPowers checks that the warden of a running sandbox has no capabilities, cannot gain any, and runs
// only the known commands.
func TestPowers(t *testing.T) {
	s := started(t, "exec sleep 1000 >alive", "-pids", "100")
	s.alive()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(s.cmd.Process.Pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if (strings.HasPrefix(line, "Cap") && strings.Trim(f[1], "0") != "") || (f[0] == "NoNewPrivs:" && f[1] != "1") {
			t.Errorf("got %s", line)
		}
	}
	for _, args := range [][]string{{"exec", "s", "sh"}, {"--root=x", "kill"}, {"pausex"}} {
		if r := s.ask(Request{Args: args}); !r.Failed || !strings.Contains(r.Output, "not a command") {
			t.Errorf("%q: got %+v, want it refused", args, r)
		}
	}
}

// TestStartFails checks that the error of a failed start includes runsc's output and that nothing remains.
func TestStartFails(t *testing.T) {
	for script, want := range map[string]string{"": "nothing to run", "exit 0": ""} {
		s := guarded(t, script, "-pids", "100")
		if s.status == "started" && script == "" || !strings.Contains(s.status, want) {
			t.Errorf("%q: the warden reports %q, want %q", script, s.status, want)
		}
		s.gone()
	}
}
