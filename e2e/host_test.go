package e2e

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	_ "modernc.org/sqlite"
)

// bootAnew makes the server's next start detect a restart of the machine.
func (s *server) bootAnew() {
	s.t.Helper()
	if s.boot == "" {
		s.boot = filepath.Join(s.t.TempDir(), "boot_id")
	}
	var id [16]byte
	rand.Read(id[:])
	if err := os.WriteFile(s.boot, fmt.Appendf(nil, "%x-%x-%x-%x-%x\n", id[:4], id[4:6], id[6:8], id[8:10], id[10:]),
		0o600); err != nil {
		s.t.Fatal(err)
	}
}

// groups are the cgroups around the server's sandboxes.
func (s *server) groups() (dirs []string) {
	s.t.Helper()
	instance, err := os.ReadFile(filepath.Join(s.state, "gvisor", "instance"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/berth-", "/sys/fs/cgroup/*/berth-"} {
		found, err := filepath.Glob(pattern + string(instance))
		if err != nil {
			s.t.Fatal(err)
		}
		dirs = append(dirs, found...)
	}
	return dirs
}

// crash ends the server and all its sandboxes at the same time, with their mounts and cgroups, as
// the machine's end does.
func (s *server) crash() {
	s.t.Helper()
	s.kill()
	for _, dir := range s.groups() {
		sandboxes, err := filepath.Glob(dir + "/*/cgroup.procs")
		if err != nil {
			s.t.Fatal(err)
		}
		for _, procs := range sandboxes {
			s.waitUntil("the processes of a sandbox have ended", func() bool {
				raw, err := os.ReadFile(procs)
				for _, pid := range strings.Fields(string(raw)) {
					n, _ := strconv.Atoi(pid)
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
				return errors.Is(err, fs.ErrNotExist) || len(raw) == 0 && os.Remove(filepath.Dir(procs)) == nil
			})
		}
		if err := os.Remove(dir); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestHostFails takes the machine away under a server and its sandboxes. When both are
// back, each container says that its host failed, and nothing of it is left but that.
func TestHostFails(t *testing.T) {
	needsLocalState(t)
	s := newHost(t, "")
	p := &planted{server: s, word: "canary" + rand.Text()}
	c := s.client()
	first, _ := s.answer(shellTask(fence("echo one >f")))
	chained := containerOf(first)
	keep := option.WithJSONSet("tools.0.environment.berth.on_expiry", "snapshot")
	asked, _ := s.answer(shellTask(fence("echo one >f")), keep)
	p.create("/volumes", `{"name":"shelf"}`)
	work := p.create("/containers", `{"name":"work","berth":{"volumes":[{"name":"shelf"}]},"network_policy":{"type":"allowlist",
		"allowed_domains":["example.com"],"domain_secrets":[{"domain":"example.com","name":"TOKEN","value":"`+p.word+`"}]}}`)
	if _, err := c.Containers.Files.New(t.Context(), work,
		openai.ContainerFileNewParams{File: openai.File(strings.NewReader(p.word), "inside",
			"text/plain")}); err != nil {
		t.Fatal(err)
	}
	p.shell(work, "cp inside /tmp/elsewhere; echo kept >/mnt/volumes/shelf/file; sync")
	if secrets := s.secrets(); secrets != 1 {
		t.Errorf("got the secrets of %d containers, want of one", secrets)
	}
	busy, err := c.Responses.New(t.Context(), background(shellTask(fence("touch running; sleep 1000", "ls"))))
	if err != nil {
		t.Fatal(err)
	}
	s.waitUntil("a command runs in the background", func() bool {
		_, _, err := s.berth("exec", containerOf(busy), "--", "test", "-e", "running")
		return err == nil
	})

	s.crash()
	s.bootAnew()
	s.start()
	c = s.client()
	ids := []string{chained, containerOf(asked), work, containerOf(busy)}
	s.erased(ids...)
	s.wantNothing(p.word)
	for _, id := range ids {
		p.want("the container", p.call("GET", "/containers/"+id, ""), `"reason":"host"`)
		_, err := c.Containers.Files.New(t.Context(), id,
			openai.ContainerFileNewParams{File: openai.File(strings.NewReader(""), "late", "text/plain")})
		if e, ok := errors.AsType[*openai.Error](err); !ok || e.Code != "container_expired" ||
			!strings.Contains(e.Message, "failure of its machine") {
			t.Errorf("a file for %s: got %v, want container_expired and why", id, err)
		}
	}
	s.waitUntil("the response that was under way has ended", func() bool {
		r, err := c.Responses.Get(t.Context(), busy.ID, responses.ResponseGetParams{})
		return err == nil && r.Status != "in_progress"
	})
	ended, err := c.Responses.Get(t.Context(), busy.ID, responses.ResponseGetParams{})
	if err != nil {
		t.Fatal(err)
	}
	p.want("the response that was under way", ended.RawJSON(), "failure of its machine")

	next := p.create("/containers", `{"name":"next","berth":{"volumes":[{"name":"shelf"}]}}`)
	p.want("the volume", p.shell(next, "cat /mnt/volumes/shelf/file"), "kept")
	_, err = c.Responses.New(t.Context(), after(asked, shellTask(fence("cat f"))), keep)
	if e, ok := errors.AsType[*openai.Error](err); !ok || e.Code != "container_expired" ||
		e.Param != "tools[0].environment" || !strings.Contains(e.Message,
		"failure of its machine; its files are gone. To get a new container instead, set 'berth.on_lost'") {
		t.Errorf("a chain whose files were to be kept: got %v, want container_expired and what can be done", err)
	}
	if _, out := s.answer(after(asked, shellTask(fence("cat f || echo gone"))), keep,
		option.WithJSONSet("tools.0.environment.berth.on_lost", "new")); len(out) != 1 || out[0] != "gone\n" {
		t.Errorf("a chain that would have any container goes on with %q", out)
	}
	// As with the hosted service, a chain that asked for nothing else continues in a new container.
	second, out := s.answer(after(first, shellTask(fence("cat f || echo gone"))))
	if containerOf(second) == chained || len(out) != 1 || out[0] != "gone\n" {
		t.Errorf("the chain goes on in %s with %q", containerOf(second), out)
	}
}

// newHost starts a server whose machine can fail.
func newHost(t *testing.T, containers string) *server {
	t.Helper()
	s := newServerWith(t, "containers: {pool: 0"+containers+"}\n")
	s.kill() // and start it again where its mounts end with it
	s.bootAnew()
	s.start()
	return s
}

func background(task responses.ResponseNewParams) responses.ResponseNewParams {
	task.Background = openai.Bool(true)
	return task
}

// erased waits until the audit record says of containers that they ended with their host
// and that nothing is left, and verifies it.
func (s *server) erased(ids ...string) {
	s.t.Helper()
	record := func() string {
		out, errs, err := s.berth("audit", "log", "--state", s.state)
		if err != nil {
			s.t.Fatalf("%v: %s", err, errs)
		}
		return out
	}
	s.waitUntil("nothing is left of the containers", func() bool {
		out, gone := record(), true
		for _, id := range ids {
			gone = gone && hasLine(out, "container.erased", id)
		}
		return gone
	})
	out := record()
	for _, id := range ids {
		if !hasLine(out, "container.ended", id, "reason=host") {
			s.t.Errorf("the record does not say that %s ended with its host", id)
		}
	}
	if n := strings.Count(out, "container.ended"); n != len(ids) {
		s.t.Errorf("the record has the ends of %d containers, want %d:\n%s", n, len(ids), out)
	}
	if out, errs, err := s.berth("audit", "verify", "--state", s.state); err != nil {
		s.t.Errorf("audit verify: %v: %s%s", err, out, errs)
	}
}

// secrets returns the number of containers whose secrets the server stores.
func (s *server) secrets() (n int) {
	s.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(s.state, "berth.db")+"?mode=ro")
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT count(*) FROM objects WHERE kind = 'container.network'").Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// wantNothing checks that no sandbox has left anything: no directory, mount, cgroup,
// process, secret, nor a file with a word that was in one.
func (s *server) wantNothing(word string) {
	s.t.Helper()
	if n := s.secrets(); n != 0 {
		s.t.Errorf("the secrets of %d containers are stored", n)
	}
	if left, err := os.ReadDir(filepath.Join(s.state, "gvisor", "sandboxes")); err != nil || len(left) > 0 {
		s.t.Errorf("sandboxes: got %v, %v, want none", left, err)
	}
	if left := s.groups(); len(left) > 0 {
		s.t.Errorf("cgroups: got %v, want none", left)
	}
	for _, who := range []string{"self", strconv.Itoa(s.cmd.Process.Pid)} {
		mounts, err := os.ReadFile(filepath.Join("/proc", who, "mountinfo"))
		if err != nil {
			s.t.Error(err)
		}
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, s.state+"/gvisor/sandboxes") {
				s.t.Errorf("a mount is left: %s", line)
			}
		}
	}
	// But for volumes, which are kept, and large.
	out, err := exec.Command("grep", "--recursive", "--files-with-matches", "--text", "--fixed-strings",
		"--exclude-dir=volumes", "-e", word, s.state).Output()
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 1 { // it found nothing, and could read all
		s.t.Errorf("what was in a sandbox: %v, found in %q", err, out)
	}
}
