package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
)

// made serves a server on which every task creates the given files and returns the given output
// items, and sets BERTH_URL.
func made(t *testing.T, files [][2]string, output ...string) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"data":[{"id":"scripted"},{"id":"m"}]}`)
	})
	mux.HandleFunc("POST /v1/responses", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w,
			`data: {"type":"response.completed","sequence_number":1,"response":{"id":"resp_1","object":"response","status":"completed","created_at":1,"output":[`+strings.Join(output,
				",")+`],`+
				`"tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"cntr_1"}}]}}`+"\n\n")
	})
	mux.HandleFunc("GET /v1/containers/cntr_1/files", func(w http.ResponseWriter, r *http.Request) {
		var list []berth.ContainerFile
		for i, f := range files {
			list = append(list, berth.ContainerFile{ID: berth.CFileID(strconv.Itoa(i)), Path: berth.WorkDir + "/" +
				f[0], Source: "assistant", CreatedAt: 1, Bytes: int64(len(f[1]))})
		}
		json.NewEncoder(w).Encode(map[string]any{"data": list})
	})
	mux.HandleFunc("GET /v1/containers/cntr_1/files/{id}/content", func(w http.ResponseWriter, r *http.Request) {
		i, _ := strconv.Atoi(r.PathValue("id"))
		fmt.Fprint(w, files[i][1])
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	t.Setenv("BERTH_URL", srv.URL)
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// Saved files do not let a sandbox's .git/config execute anything, neither in the operator's
// repository nor in a new directory, nor as a bare repository.
func TestOutputIsNotExecutedByGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	home := t.TempDir()
	env := append(os.Environ(), "HOME="+home, "GIT_CONFIG_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES="+home)
	run := func(dir string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), git, args...)
		cmd.Dir, cmd.Env = dir, env
		_ = cmd.Run() // fails outside of a repository
	}
	proof := filepath.Join(home, "executed")
	config := "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = \"touch " + proof + "; false\"\n"
	var evil [][2]string
	for _, dir := range []string{".git/", "sub/.git/", "sub/.GIT/", ".g\u200cit/", "bare/"} {
		worktree := config
		if dir == "bare/" {
			worktree += "\tworktree = .\n"
		}
		evil = append(evil, [2]string{dir + "config", worktree}, [2]string{dir + "HEAD", "ref: refs/heads/main\n"},
			[2]string{dir + "objects/info/x", ""}, [2]string{dir + "refs/heads/x", ""})
	}
	evil = append(evil, [2]string{".envrc", "x"}, [2]string{".vscode/tasks.json", "x"}, [2]string{"result.txt", "fine"})
	made(t, evil)

	project := filepath.Join(home, "project")
	write(t, filepath.Join(project, "Makefile"), "mine")
	run(project, "init", "-q")
	before := read(t, filepath.Join(project, ".git/config"))
	if code, stderr := commandLine(t, "run", "--out", project, "x"); code != 1 || !strings.Contains(stderr,
		"not empty") {
		t.Errorf("into a repository: got %d %s, want an error", code, stderr)
	}
	fresh := filepath.Join(home, "fresh")
	for _, args := range [][]string{{"--out", project, "--force"}, {"--out", fresh}} {
		code, stderr := commandLine(t, append(append([]string{"run"}, args...), "x")...)
		if code != 0 || !strings.Contains(stderr, ".git/config  hidden, not saved") {
			t.Errorf("%q: got %d %s", args, code, stderr)
		}
	}
	if after := read(t, filepath.Join(project, ".git/config")); after != before {
		t.Errorf("the repository's configuration has changed to %q", after)
	}
	for _, dir := range []string{project, fresh, fresh + "/sub", fresh + "/bare"} {
		run(dir, "status")
	}
	if _, err := os.Stat(proof); err == nil {
		t.Error("git executed a sandbox's configuration")
	}
	if got := read(t, filepath.Join(fresh, "result.txt")); got != "fine" {
		t.Errorf("got %q", got)
	}
	// Check the test itself: with --hidden, git executes the configuration.
	loose := filepath.Join(home, "loose")
	if code, stderr := commandLine(t, "run", "--out", loose, "--hidden", "x"); code != 0 {
		t.Fatalf("--hidden: got %d %s", code, stderr)
	}
	run(loose, "status")
	if _, err := os.Stat(proof); err != nil {
		t.Errorf("--hidden: %v, want the container's repository", err)
	}
}

// berth run replaces no existing files, and with --force only regular files.
func TestOutputReplacesNothing(t *testing.T) {
	made(t, [][2]string{{"a", "new"}, {"dir/b", "new"}, {"link", "new"}, {"pipe", "new"}, {"a/c", "new"},
		{"../up", "new"}, {"/abs", "new"}})
	dir := filepath.Join(t.TempDir(), "out")
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, outside, "mine")
	write(t, filepath.Join(dir, "a"), "mine")
	if err := errors.Join(os.Symlink(outside, filepath.Join(dir, "link")), unix.Mkfifo(filepath.Join(dir, "pipe"),
		0o600)); err != nil {
		t.Fatal(err)
	}
	if code, stderr := commandLine(t, "run", "--out", dir, "x"); code != 1 || !strings.Contains(stderr, "not empty") ||
		read(t, filepath.Join(dir, "a")) != "mine" {
		t.Errorf("got %d %s, want an error", code, stderr)
	}
	code, stderr := commandLine(t, "run", "--out", dir, "--force", "x")
	for _, want := range []string{"link  not saved: a symbolic link of this name already exists",
		"pipe  not saved: a pipe of this name already exists", "a/c  not saved", "up  not saved: invalid file name",
		"5 files were not saved"} {
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("--force: got %d %s, want %q", code, stderr, want)
		}
	}
	if read(t, filepath.Join(dir, "a")) != "new" || read(t, filepath.Join(dir, "dir/b")) != "new" ||
		read(t, outside) != "mine" {
		t.Error("--force: replaced the wrong files")
	}
	left, err := filepath.Glob(filepath.Join(dir, ".berth-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// Saving a file follows no link, replaces a file only with force, and limits its mode by the umask and
// the container's mode.
func TestSavedFiles(t *testing.T) {
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	write(t, victim, "mine")
	for _, name := range []string{"link", "link.part", "new.part"} {
		if err := os.Symlink(victim, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	save := func(name string, mode fs.FileMode, force bool) error {
		_, err := saveAt(filepath.Join(dir, name), strings.NewReader("new"), mode, force)
		return err
	}
	if err := save("new", 0o666, false); err != nil {
		t.Error(err)
	}
	if err := save("secret", 0o600, false); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]fs.FileMode{"new": 0o640, "secret": 0o600} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode() != want {
			t.Errorf("%s: got %v, %v; want %v", name, st.Mode(), err, want)
		}
	}
	if err := save("victim", 0o666, false); !errors.Is(err, errExists) {
		t.Errorf("existing file: got %v", err)
	}
	for _, force := range []bool{false, true} {
		if err := save("link", 0o666, force); err == nil {
			t.Errorf("link, force %v: replaced", force)
		}
	}
	if _, err := saveAt(os.DevNull, strings.NewReader("new"), 0o666, true); err == nil || !strings.Contains(err.Error(),
		"device") {
		t.Errorf("device: got %v", err)
	}
	if got := read(t, victim); got != "mine" {
		t.Errorf("the link's target has changed to %q", got)
	}
	if err := save("victim", 0o666, true); err != nil || read(t, victim) != "new" {
		t.Errorf("with force: got %v", err)
	}
	// A failed copy leaves no file.
	if _, err := saveAt(filepath.Join(dir, "half"), &halfRead{}, 0o666, false); err == nil {
		t.Error("an incomplete file was saved")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 6 {
		t.Errorf("got %v, %v", entries, err)
	}
}

type halfRead struct{ done bool }

func (h *halfRead) Read(p []byte) (int, error) {
	if h.done {
		return 0, errors.New("broken off")
	}
	h.done = true
	return copy(p, "half"), nil
}
