package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A codexTask is a folder, and codex at work in it through a Berth.
type codexTask struct {
	t   *testing.T
	url string
	dir string
}

// run has codex do a task and returns what it said.
func (c *codexTask) run(model, task string, args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "codex/node_modules/.bin/codex", append([]string{"exec", "--skip-git-repo-check",
		"--dangerously-bypass-approvals-and-sandbox",
		"--cd", c.dir, "--model", model, "--config", "model_provider=berth",
		"--config", `model_providers.berth={name="Berth",base_url="` + c.url + `/v1",wire_api="responses"}`,
		"--config", `web_search="disabled"`, // the server under test has no search service
		task}, args...)...)
	home := codexHome(c.t)
	// codex runs login shells, which read the user's profile
	cmd.Env = append(os.Environ(), "CODEX_HOME="+home, "HOME="+home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// codexHome is a folder for codex's own state, which it does not want among
// temporary files.
func codexHome(t *testing.T) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cache = filepath.Join(cache, "berth-test")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp(cache, "codex-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	return home
}

// block is a call for the upstream to make; see newUpstream.
func block(function string, arguments any) string {
	raw, err := json.Marshal(arguments)
	if err != nil {
		panic(err)
	}
	return "```" + function + "\n" + string(raw) + "\n```\n"
}

// TestClientsCodex edits a folder with the codex command line as it comes.
func TestClientsCodex(t *testing.T) {
	skipClient(t)
	skipWithout(t, "codex/node_modules/.bin/codex")
	upstream, env := newUpstream(t)
	s := newServer(t, env...)
	c := &codexTask{t: t, url: s.url, dir: t.TempDir()}
	log := filepath.Join(c.dir, "log.md")
	if err := os.WriteFile(log, []byte("# Log\n\ncalm\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	t.Run("with a shell", func(t *testing.T) {
		out := c.run("reciter",
			block("exec_command", map[string]string{"cmd": "sed -i s/calm/breeze/ log.md && cat log.md"}))
		if got := read(t, log); got != "# Log\n\nbreeze\n" || !strings.Contains(out, "It came to this:") {
			t.Errorf("the file is %q; codex said:\n%s", got, out)
		}
	})
	// For a model of OpenAI's that it knows, codex offers its free-form tool, with a
	// grammar, and a search for more tools.
	t.Run("with a patch", func(t *testing.T) {
		patch := "*** Begin Patch\n*** Update File: log.md\n@@\n # Log\n \n-breeze\n+storm\n*** Add File: new.md\n+# New\n*** End Patch\n"
		c.run("gpt-5.5", block("apply_patch", map[string]string{"input": patch})+block("tool_search",
			map[string]string{"query": "agents"}))
		if got, want := read(t, log)+read(t, filepath.Join(c.dir, "new.md")), "# Log\n\nstorm\n# New\n"; got != want {
			t.Errorf("the files are %q, want %q", got, want)
		}
		last := upstream.Requests()[len(upstream.Requests())-1]
		if n := len(last.Messages); !strings.Contains(last.Messages[n-1].Text, "These can be called now: ") ||
			!strings.Contains(last.Messages[n-3].Text, "M log.md") {
			t.Errorf("the model saw %+v", last.Messages[n-4:])
		}
	})
	t.Run("Berth's MCP server", func(t *testing.T) {
		c.run("reciter", block("mcp__berth__write", map[string]string{"path": "n", "content": "41"})+
			block("mcp__berth__run", map[string]string{"command": "echo $(($(cat n) + 1))"}),
			"--config", `mcp_servers.berth.url="`+s.url+`/mcp?container=codex"`)
		last := upstream.Requests()[len(upstream.Requests())-1]
		if got := last.Messages[len(last.Messages)-1].Text; !strings.Contains(got, `"stdout":"42\n"`) {
			t.Errorf("the model saw %s", got)
		}
	})
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
