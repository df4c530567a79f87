// Package dockertest starts a Docker Engine for tests, separate from any other on the machine:
// its own socket, its own data, no bridge and no firewall rules.
package dockertest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// HostEnv names an environment variable with the address of an engine for tests, like
// DOCKER_HOST: unix:///var/run/docker.sock. Tests remove the objects that they create there.
const HostEnv = "BERTH_TEST_DOCKER_HOST"

// Time limits for an engine to answer and to end.
const (
	startTimeout = 30 * time.Second
	stopTimeout  = 30 * time.Second
)

// Main runs the tests of a package that calls Host, ends the shared engine and exits. Call it
// from TestMain.
func Main(m *testing.M) {
	code := m.Run()
	if e := shared.engine; e != nil {
		if err := e.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "dockertest:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// shared is the engine that Host returns.
var shared struct {
	once   sync.Once
	engine *engine
	err    error
}

// Host returns the address, in the form of DOCKER_HOST, of an engine that all tests of the
// process share. It starts the engine at the first call. The package's TestMain must call Main.
// If no engine can run, it skips the test.
func Host(tb testing.TB) string {
	tb.Helper()
	if host := os.Getenv(HostEnv); host != "" {
		return host
	}
	shared.once.Do(func() { shared.engine, shared.err = start(nil) })
	if shared.err != nil {
		tb.Skipf("skipped: no Docker Engine: %v", shared.err)
	}
	return shared.engine.host()
}

// Start returns the address of a new engine with additional dockerd flags. The engine ends with
// the test. If no engine can run, Start skips the test.
func Start(tb testing.TB, flags ...string) string {
	tb.Helper()
	e, err := start(flags)
	if err != nil {
		tb.Skipf("skipped: no Docker Engine: %v", err)
	}
	tb.Cleanup(func() {
		if err := e.stop(); err != nil {
			tb.Error(err)
		}
	})
	return e.host()
}

// An engine is a dockerd with a directory of its own.
type engine struct {
	dir  string
	lock *os.File // held, also by dockerd, while dir is in use
	cmd  *exec.Cmd
	done chan struct{} // closed when dockerd has ended
}

func (e *engine) path(elem string) string { return filepath.Join(e.dir, elem) }
func (e *engine) socket() string          { return e.path("docker.sock") }
func (e *engine) host() string            { return "unix://" + e.socket() }

// start starts an engine and waits until it answers.
func start(flags []string) (*engine, error) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return nil, errors.New("only root on Linux can start one")
	}
	program, err := exec.LookPath("dockerd")
	if err != nil {
		return nil, errors.New("dockerd is not installed; run scripts/setup test")
	}
	e, err := newEngine()
	if err != nil {
		return nil, err
	}
	if err := e.run(program, flags); err != nil {
		return nil, errors.Join(err, e.remove())
	}
	if err := e.await(); err != nil {
		err = fmt.Errorf("%w; its log ends: %s", err, e.lastWords())
		return nil, errors.Join(err, e.stop())
	}
	return e, nil
}

// newEngine creates the engine's directory in the user's cache: the system's directory for
// temporary files may be in memory, or too small.
func newEngine() (*engine, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "berth-test")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	// The kernel lists mounts by their paths without links.
	if cache, err = filepath.EvalSymlinks(cache); err != nil {
		return nil, err
	}
	// Other processes may remove stale directories before ours is locked.
	making, err := lock(filepath.Join(cache, "engines.lock"), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer making.Close()
	removeStale(cache)
	dir, err := os.MkdirTemp(cache, prefix)
	if err != nil {
		return nil, err
	}
	e := &engine{dir: dir, done: make(chan struct{})}
	if e.lock, err = lockDir(dir); err == nil {
		err = os.WriteFile(e.path("daemon.json"), []byte("{}"), 0o600) // ignores the machine's configuration
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return e, nil
}

// run starts dockerd. dockerd ends with this process, however that ends.
func (e *engine) run(program string, flags []string) error {
	log, err := os.Create(e.path("log"))
	if err != nil {
		return err
	}
	defer log.Close()
	e.cmd = exec.Command(program, append([]string{
		"--host=" + e.host(),
		"--config-file=" + e.path("daemon.json"),
		"--data-root=" + e.path("data"),
		"--exec-root=" + e.path("exec"),
		"--pidfile=" + e.path("pid"),
		"--bridge=none", "--iptables=false", "--ip6tables=false",
		"--shutdown-timeout=1",
	}, flags...)...)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.ExtraFiles = []*os.File{e.lock}
	e.cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "DOCKER_") })
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGTERM}

	started := make(chan error)
	go func() {
		// Pdeathsig refers to the thread that starts the process.
		runtime.LockOSThread()
		err := e.cmd.Start()
		started <- err
		if err == nil {
			_ = e.cmd.Wait()
			close(e.done)
		}
	}()
	return <-started
}

// await returns when the engine answers, or has ended.
func (e *engine) await() error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(startTimeout); ; {
		if e.ping() {
			return nil
		}
		select {
		case <-e.done:
			return fmt.Errorf("dockerd ended: %v", e.cmd.ProcessState)
		case now := <-tick.C:
			if now.After(end) {
				return errors.New("dockerd does not answer")
			}
		}
	}
}

func (e *engine) ping() bool {
	conn, err := net.DialTimeout("unix", e.socket(), time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(startTimeout))
	if _, err := conn.Write([]byte("GET /_ping HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n")); err != nil {
		return false
	}
	answer := make([]byte, len("HTTP/1.1 200"))
	n, _ := conn.Read(answer)
	return string(answer[:n]) == "HTTP/1.1 200"
}

// stop ends the engine, with its containers, and removes its directory.
func (e *engine) stop() error {
	var err error
	_ = e.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-e.done:
	case <-time.After(stopTimeout):
		err = errors.New("dockerd did not end and was killed")
		_ = e.cmd.Process.Kill()
		<-e.done
	}
	return errors.Join(err, e.remove())
}

func (e *engine) remove() error {
	defer e.lock.Close()
	return removeDir(e.dir)
}

// lastWords returns the end of dockerd's log on one line.
func (e *engine) lastWords() string {
	raw, err := os.ReadFile(e.path("log"))
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-3):], []byte(" | ")))
}

// prefix starts the names of engines' directories.
const prefix = "engine-"

// removeStale removes the directories of engines whose test was killed.
func removeStale(cache string) {
	dirs, _ := filepath.Glob(filepath.Join(cache, prefix+"*"))
	for _, dir := range dirs {
		if f, err := lockDir(dir); err == nil {
			_ = removeDir(dir)
			f.Close()
		}
	}
}

// lockDir locks an engine's directory, unless another process holds the lock.
func lockDir(dir string) (*os.File, error) {
	return lock(filepath.Join(dir, "lock"), unix.LOCK_EX|unix.LOCK_NB)
}

func lock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock: %w", err)
	}
	return f, nil
}

// removeDir removes an engine's directory and unmounts the file systems in it.
func removeDir(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var below []string
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			below = append(below, f[4])
		}
	}
	for _, path := range slices.Backward(below) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
	return os.RemoveAll(dir)
}
