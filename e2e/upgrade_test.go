package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/longtest"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// formerCommit is the release that TestUpgrade starts from, as long as no version has a tag: the last
// commit whose database has schema 9, two migrations before events were stored as they are today.
const formerCommit = "6e8fb1ea25970ad8f85ca18295498dccf34cb574"

// former returns the binary of the former release, built from the history of this repository: the
// latest tag of a version, or commit if there is none.
func former(t *testing.T, commit string) string {
	t.Helper()
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", args...).Output()
		return strings.TrimSpace(string(out)), err
	}
	root, err := git("rev-parse", "--show-toplevel")
	if err != nil {
		t.Skipf("skipped: this is no git repository: %v", err)
	}
	if tag, err := git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD~1"); err == nil {
		if commit, err = git("rev-parse", tag+"^{commit}"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := git("cat-file", "-e", commit+"^{commit}"); err != nil {
		t.Skipf("skipped: the history of this clone is without %s", commit)
	}
	dir := drivertest.Cached(t, "former-"+commit[:12], func(tmp string) error {
		t.Logf("building %s; this takes minutes, once", commit)
		source := filepath.Join(tmp, "source")
		for _, step := range [][]string{
			{"git", "clone", "-q", "--no-checkout", "--shared", root, source},
			{"git", "-C", source, "checkout", "-q", commit},
			{"make", "--no-print-directory", "-C", source, "build"},
			{"mv", filepath.Join(source, "bin", "berth"), tmp},
			{"rm", "-rf", source},
		} {
			if out, err := exec.Command(step[0], step[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%q: %w: %s", step, err, out)
			}
		}
		return nil
	})
	return filepath.Join(dir, "berth")
}

// TestUpgrade replaces a server of the former release by this one while containers run: one with a process,
// files, a volume and a variable of its shell, one that is paused, one in the middle of a response's command.
// Its guests are those of the former release. All of them are used, and what was stored is there. Afterwards
// the former release refuses the database, and changes nothing.
func TestUpgrade(t *testing.T) {
	longtest.Skip(t)
	for _, end := range []struct {
		name string
		stop func(*server)
	}{
		{"stopped", func(s *server) {
			_ = s.cmd.Process.Signal(syscall.SIGTERM)
			if err := s.cmd.Wait(); err != nil {
				s.t.Errorf("the former server did not stop in order: %v", err)
			}
		}},
		{"killed", (*server).kill},
	} {
		t.Run(end.name, func(t *testing.T) { testUpgrade(t, end.stop) })
	}
}

func testUpgrade(t *testing.T, stop func(*server)) {
	current, previous := binary(t), former(t, formerCommit)
	t.Setenv("BERTH_GUEST", "") // each server uses the guest and the gVisor that are part of it
	t.Setenv("BERTH_RUNSC", "")
	t.Setenv("BERTH_BIN", previous)
	s := newServerWith(t, "containers: {pool: 1}\n")
	c := s.client()
	must := func(args ...string) string {
		t.Helper()
		out, errs, err := s.berth(args...)
		if err != nil {
			t.Fatalf("berth %q: %v: %s%s", args, err, out, errs)
		}
		return strings.TrimSpace(out)
	}
	sh := func(container, script, want string) {
		t.Helper()
		if got := must("exec", container, "--", "sh", "-c", script); got != want {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}

	// With the former release: three containers, a file, a snapshot, and a response that is at work.
	one := s.newVolumeContainer("shelf")
	sh(one, "echo mine >/mnt/data/file; setsid sh -c 'while :; do date >/tmp/beat; sleep 0.1; done' >/dev/null 2>&1 & echo $! >/mnt/data/pid", "")
	first, _ := s.answer(in(one, shellTask(fence("export STEP=1; cd /tmp; cat /mnt/data/file"))))
	paused, err := c.Containers.New(t.Context(), openai.ContainerNewParams{Name: "paused"})
	if err != nil {
		t.Fatal(err)
	}
	sh(paused.ID, "echo asleep >/mnt/data/file", "")
	must("pause", paused.ID)
	snapshot := must("snapshot", "create", one)
	file, err := c.Files.New(t.Context(), openai.FileNewParams{File: openai.File(strings.NewReader("a file\n"), "a.txt",
		"text/plain"), Purpose: "user_data"})
	if err != nil {
		t.Fatal(err)
	}
	task := shellTask(fence("echo begun >>counter; until [ -e go ]; do sleep 0.05; done; cat counter", "cat counter"))
	task.Background = param.NewOpt(true)
	working, err := c.Responses.New(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	busy := containerOf(working)
	s.waitUntil("the command has begun", func() bool {
		out, _, err := s.berth("exec", busy, "--", "sh", "-c", "cat counter")
		return err == nil && out == "begun\n"
	})

	// The upgrade.
	stop(s)
	t.Setenv("BERTH_BIN", current)
	s.start()
	c = s.client()
	resp, err := http.Get(s.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	ready, _ := io.ReadAll(resp.Body)
	if resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Errorf("readyz: %s: %s", resp.Status, ready)
	}

	if guests, err := filepath.Glob(filepath.Join(s.state, "bin", "berth-guest-*")); err != nil || len(guests) != 2 {
		t.Errorf("got guests %v, %v, want the former release's and this one's", guests, err)
	}

	// The containers live on, with their processes, files, volumes and shells.
	listed := must("ps", "-q")
	for _, id := range []string{one, paused.ID, busy} {
		if !strings.Contains(listed, id) {
			t.Errorf("berth ps: %s is not listed:\n%s", id, listed)
		}
	}
	sh(one, "kill -0 $(cat /mnt/data/pid) && rm /tmp/beat && until [ -e /tmp/beat ]; do sleep 0.05; done; cat /mnt/data/file /mnt/volumes/shelf/f",
		"mine\nshelf")
	_, outputs := s.answer(after(first, in(one, shellTask(fence("echo $STEP; pwd; echo more >>/mnt/data/file")))))
	if diff := cmp.Diff([]string{"1\n/tmp\n"}, outputs); diff != "" {
		t.Errorf("the shell of the container (-want +got):\n%s", diff)
	}
	if _, err := c.Containers.Files.New(t.Context(), one,
		openai.ContainerFileNewParams{File: openai.File(bytes.NewReader(make([]byte, 4<<20)), "big",
			"text/plain")}); err != nil {
		t.Errorf("upload into the container: %v", err)
	}
	sh(one, "stat -c %s /mnt/data/big", "4194304")
	must("resume", paused.ID)
	sh(paused.ID, "cat /mnt/data/file", "asleep")
	must("pause", paused.ID)
	must("resume", paused.ID)

	// The response continues: its command, which outlived the server, ran once.
	if _, err := c.Containers.Files.New(t.Context(), busy,
		openai.ContainerFileNewParams{File: openai.File(strings.NewReader(""), "go", "text/plain")}); err != nil {
		t.Fatalf("upload into the busy container: %v", err)
	}
	s.waitUntil("the response has ended", func() bool {
		working, err = c.Responses.Get(t.Context(), working.ID, responses.ResponseGetParams{})
		return err == nil && working.Status != "in_progress" && working.Status != "queued"
	})
	if diff := cmp.Diff([]string{"begun\n", "begun\n"}, stdouts(working)); diff != "" || working.Status != "completed" {
		t.Errorf("the response is %s %v, output (-want +got):\n%s", working.Status, working.Error, diff)
	}

	// What was stored is there, and old and new containers can be derived from the old.
	if stored, err := c.Responses.Get(t.Context(), first.ID, responses.ResponseGetParams{}); err != nil ||
		len(stdouts(stored)) != 1 || stdouts(stored)[0] != "mine\n" {
		t.Errorf("the stored response: %v, %v", stored, err)
	}
	if content, err := c.Files.Content(t.Context(), file.ID); err != nil {
		t.Errorf("the stored file: %v", err)
	} else if raw, err := io.ReadAll(content.Body); err != nil || string(raw) != "a file\n" {
		t.Errorf("the stored file: %q, %v", raw, err)
	}
	var fork berth.Container
	if err := c.Post(t.Context(), "containers/"+one+"/fork", map[string]string{"name": "fork"}, &fork); err != nil {
		t.Fatalf("fork: %v", err)
	}
	sh(string(fork.ID), "cat /mnt/data/file", "mine\nmore")
	restored, err := c.Containers.New(t.Context(), openai.ContainerNewParams{Name: "restored"},
		option.WithJSONSet("berth.snapshot_id", strings.Fields(snapshot)[0]))
	if err != nil {
		t.Fatalf("restore the former release's snapshot: %v", err)
	}
	sh(restored.ID, "cat /mnt/data/file", "mine")
	must("rm", one)
	if out, errs, err := s.berth("audit", "verify", "--state", s.state); err != nil {
		t.Errorf("audit verify: %v: %s%s", err, out, errs)
	}

	// The way back is a backup: the former release refuses the database, and leaves it as it is.
	stop(s)
	out, err := exec.Command(previous, "serve", "--listen", "127.0.0.1:0", "--state", s.state).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "written by a later version of Berth") {
		t.Errorf("the former server on the newer database: %v: %s", err, out)
	}
	s.start()
	sh(paused.ID, "cat /mnt/data/file", "asleep")
	if left, err := os.ReadDir(filepath.Join(s.state, "gvisor", "sandboxes")); err != nil || len(left) < 4 {
		t.Errorf("sandboxes: %v, %v", left, err)
	}
}
