// Package e2e tests the binary as users have it: built, started on a state
// directory of its own, and spoken to by the official clients. Nothing in it
// imports Berth's packages except the nouns.
package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/berth-run/berth/internal/freeport"
)

// The binary is built by make; BERTH_BIN names another one.
func binary(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("BERTH_BIN")
	if bin == "" {
		bin = "../bin/berth"
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Skipf("no %s: run make build", bin)
	}
	return bin
}

// templates is where the base template is kept between test runs.
func templates(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("BERTH_TEST_STATE"); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "berth-test", "state")
}

// A server is one `berth serve` on a state directory.
type server struct {
	t     *testing.T
	state string
	url   string
	addr  string   // where it listens; empty is a new port at each start
	args  []string // of serve, beside those of every server
	env   []string
	cmd   *exec.Cmd
	log   *logBuffer
	wrap  []string             // a command that runs it; nil is none
	key   string               // that clients bear; "" is none
	files []*os.File           // that it is given as descriptors 3 and up
	attr  *syscall.SysProcAttr // who runs it; nil is who runs the tests
	boot  string               // a file with the id of the machine's start; empty: the machine's own
}

// A logBuffer is a server's log, which can be read while the server writes it.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// drop removes the lines that contain a word.
func (l *logBuffer) drop(word string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var rest bytes.Buffer
	for line := range bytes.Lines(l.buf.Bytes()) {
		if !bytes.Contains(line, []byte(word)) {
			rest.Write(line)
		}
	}
	l.buf = rest
}

// newServer starts a server with the base template and without keys; env is added to
// its environment.
func newServer(t *testing.T, env ...string) *server {
	t.Helper()
	return newServerWith(t, "", env...)
}

// newServerWith is newServer with a configuration file.
func newServerWith(t *testing.T, config string, env ...string) *server {
	t.Helper()
	return newServerIn(t, t.TempDir(), config, env...)
}

// newServerIn is newServerWith with a state directory, which it makes.
func newServerIn(t *testing.T, state, config string, env ...string) *server {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("gVisor sandboxes need root")
	}
	s := prepareServer(t, state, config, env...)
	s.start()
	t.Cleanup(s.close)
	return s
}

// prepareServer returns a server that is not started, with the base template.
func prepareServer(t *testing.T, state, config string, env ...string) *server {
	t.Helper()
	s := &server{t: t, state: state, env: env, log: &logBuffer{}}
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	images := filepath.Join(templates(t), "images")
	if _, err := os.Stat(images); err != nil {
		t.Skipf("no base template in %s: run make test, which builds it", images)
	}
	if err := os.Symlink(images, filepath.Join(s.state, "images")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(path, []byte(withoutPool(withRemote(t, config))), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = []string{"--config", path}
	return s
}

var containersKey = regexp.MustCompile(`(?m)^containers:( \{|\n( +))`)

// withoutPool returns a configuration without a pool, unless it sets one: the sandboxes of a pool are made and thrown
// away in each test.
func withoutPool(config string) string {
	if strings.Contains(config, "pool: ") {
		return config
	}
	at := containersKey.FindStringSubmatchIndex(config)
	switch {
	case at == nil && (config == "" || strings.HasSuffix(config, "\n")):
		return config + "containers: {pool: 0}\n"
	case at == nil:
		return config + "\ncontainers: {pool: 0}\n"
	case at[4] < 0:
		return config[:at[1]] + "pool: 0, " + config[at[1]:]
	}
	indent := config[at[4]:at[5]]
	return config[:at[4]] + indent + "pool: 0\n" + config[at[4]:]
}

// Servers of tests have no pool, however their configuration is written.
func TestWithoutPool(t *testing.T) {
	for config, want := range map[string]string{
		"":                                "containers: {pool: 0}\n",
		"a: 1":                            "a: 1\ncontainers: {pool: 0}\n",
		"a: 1\n":                          "a: 1\ncontainers: {pool: 0}\n",
		"a: 1\ncontainers: {disk: 1g}\n":  "a: 1\ncontainers: {pool: 0, disk: 1g}\n",
		"containers:\n  disk: 1g\nb: 2\n": "containers:\n  pool: 0\n  disk: 1g\nb: 2\n",
		"containers: {pool: 1}\n":         "containers: {pool: 1}\n",
	} {
		if got := withoutPool(config); got != want {
			t.Errorf("%q: got %q, want %q", config, got, want)
		}
	}
}

// start starts the server and returns when it answers.
func (s *server) start() {
	s.t.Helper()
	s.launch()
	s.waitUntil("the server answers", s.healthy)
}

// healthy reports whether the server answers.
func (s *server) healthy() bool {
	resp, err := http.Get(s.url + "/healthz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// launch starts the server and does not wait for it.
func (s *server) launch() {
	s.t.Helper()
	addr := s.addr
	if addr == "" {
		addr = freeport.Addr(s.t)
	}
	if url := "http://" + addr; s.url != url { // a fleet's servers keep theirs, which others read
		s.url = url
	}
	args := append([]string{binary(s.t), "serve", "--listen", addr, "--state", s.state}, s.args...)
	if s.boot != "" {
		args = append([]string{"unshare", "--mount", "sh", "-c",
			`mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`, s.boot}, args...)
	}
	args = append(slices.Clone(s.wrap), args...)
	s.cmd = exec.Command(args[0], args[1:]...)
	s.cmd.Env = slices.Concat(os.Environ(), []string{"BERTH_BUILD_TEMPLATE=never"}, s.env)
	s.cmd.Stderr = s.log
	s.cmd.SysProcAttr = s.attr
	s.cmd.ExtraFiles = s.files
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// kill ends the server without an orderly stop.
func (s *server) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait()
}

// close deletes the containers and stops the server. Nothing of them is left.
func (s *server) close() {
	s.t.Helper()
	s.deleteContainers()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the server did not stop in order: %v", err)
	}
	s.endContainers()
	if s.t.Failed() {
		s.t.Logf("the server logged:\n%s", s.log)
	}
}

// deleteContainers deletes the containers of the client's project.
func (s *server) deleteContainers() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client := s.client()
	var containers []string // all of them first: the next page follows on the last of this
	for page := client.Containers.ListAutoPaging(ctx, openai.ContainerListParams{}); page.Next(); {
		containers = append(containers, page.Current().ID)
	}
	for _, id := range containers {
		_ = client.Containers.Delete(ctx, id)
	}
}

// endContainers ends the containers of a server that has stopped: those of other projects, and what it could not
// delete before. No process may be left.
func (s *server) endContainers() {
	s.t.Helper()
	left := s.processes()
	if len(left) == 0 {
		return
	}
	s.t.Logf("processes of containers that are ended now:\n%s", strings.Join(left, "\n"))
	args := []string{"stop", "--all", "--yes", "--state", s.state}
	if i := slices.Index(s.args, "--config"); i >= 0 {
		args = append(args, s.args[i:i+2]...)
	}
	cmd := s.command(args...)
	cmd.Env = append(cmd.Env, s.env...)
	cmd.SysProcAttr = s.attr
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Errorf("containers of %s could not be ended: %v: %s", s.state, err, out)
	}
	s.waitUntil("no process is left", func() bool { return len(s.processes()) == 0 })
}

func (s *server) waitUntil(what string, ok func() bool) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-tick.C {
		if ok() {
			return
		}
	}
	s.t.Fatalf("waited in vain until %s; the server logged:\n%s", what, s.log)
}

// logs reports whether one line of the server's log contains all words. The log arrives
// later than the answer to the request that caused it: wait for it with waitUntil.
func (s *server) logs(words ...string) bool {
	for line := range strings.Lines(s.log.String()) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return true
		}
	}
	return false
}

// receive returns a value of a channel, or fails the test after a minute.
func receive[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		t.Fatalf("waited in vain until %s", what)
	}
	return v
}

func (s *server) client(opts ...option.RequestOption) *openai.Client {
	c := openai.NewClient(append([]option.RequestOption{option.WithBaseURL(s.url + "/v1"),
		option.WithAPIKey(cmp.Or(s.key, "none")), option.WithMaxRetries(0)}, opts...)...)
	return &c
}

// berth runs the command line against the server and returns its output.
func (s *server) berth(args ...string) (stdout, stderr string, err error) {
	cmd := s.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// command returns a command line against the server.
func (s *server) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary(s.t), args...)
	cmd.Env = append(os.Environ(), "BERTH_URL="+s.url, "BERTH_STATE="+s.state, "BERTH_API_KEY="+s.key)
	return cmd
}

// fence writes commands as the scripted model recites them, one turn each.
func fence(commands ...string) string {
	var b strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&b, "```sh\n%s\n```\n", c)
	}
	return b.String()
}
