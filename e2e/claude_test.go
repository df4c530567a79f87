package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const claudeProgram = "anthropic/node_modules/.bin/claude"

// A claudeCode is Claude Code in a folder, through a Berth, with a home of its own.
type claudeCode struct {
	url       string
	dir, home string
	env       []string // beside that of every run
}

func newClaudeCode(t *testing.T, url string) *claudeCode {
	t.Helper()
	c := &claudeCode{url: url, dir: t.TempDir(), home: t.TempDir()}
	// Without the setting, WebFetch asks Anthropic whether a host may be fetched.
	settings := filepath.Join(c.home, "settings.json")
	if err := os.WriteFile(settings, []byte(`{"skipWebFetchPreflight": true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// A claudeResult is what Claude Code prints at its end.
type claudeResult struct {
	Result  string
	IsError bool   `json:"is_error"`
	Session string `json:"session_id"`
	Denials []any  `json:"permission_denials"`
	Usage   struct {
		InputTokens int `json:"input_tokens"`
	}
}

// run has Claude Code do a task.
func (c *claudeCode) run(t *testing.T, task string, args ...string) claudeResult {
	t.Helper()
	program, err := filepath.Abs(claudeProgram)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"-p", task, "--output-format", "json",
		"--allowedTools", "Bash,Read,Edit,Write,WebSearch,WebFetch,mcp__berth"}, args...)...)
	cmd.Dir = c.dir
	cmd.Env = slices.Concat(os.Environ(), []string{"PWD=" + c.dir, "HOME=" + c.home, "CLAUDE_CONFIG_DIR=" + c.home, "TMPDIR=" + c.home,
		"ANTHROPIC_BASE_URL=" + c.url, "ANTHROPIC_AUTH_TOKEN=none", "ANTHROPIC_MODEL=reciter",
		"ANTHROPIC_SMALL_FAST_MODEL=reciter",
		// What it would send to its maker.
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}, c.env)
	var out, logged bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &logged
	err = cmd.Run()
	var r claudeResult
	if err != nil || json.Unmarshal(out.Bytes(), &r) != nil || r.IsError || len(r.Denials) > 0 {
		t.Fatalf("%v\n%s\n%s", err, &out, &logged)
	}
	return r
}

// TestClientsClaude edits a folder with Claude Code, and uses the web and a container, as it comes.
func TestClientsClaude(t *testing.T) {
	skipClient(t)
	skipWithout(t, claudeProgram)
	used := newServices(t)
	s := used.server(t)
	c := newClaudeCode(t, s.url)
	log := filepath.Join(c.dir, "log.md")
	if err := os.WriteFile(log, []byte("# Log\n\ncalm\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// It defers these tools: the model finds them by its search before it can call them.
	found := func(names ...string) string {
		return block("ToolSearch", map[string]string{"query": "select:" + strings.Join(names, ",")})
	}
	seen := func() string {
		all := used.reciter.Requests()
		return string(all[len(all)-1].Body)
	}

	t.Run("a file edited with its own tools", func(t *testing.T) {
		r := c.run(t, block("Read", map[string]string{"file_path": log})+
			block("Edit", map[string]string{"file_path": log, "old_string": "calm", "new_string": "breeze"})+
			block("Bash", map[string]string{"command": "cat log.md"}))
		if got := read(t, log); got != "# Log\n\nbreeze\n" || !strings.Contains(r.Result, "breeze") {
			t.Errorf("the file is %q; it said %q", got, r.Result)
		}
		if r.Usage.InputTokens == 0 {
			t.Error("it knows no usage")
		}
	})
	t.Run("a session resumed, and continued", func(t *testing.T) {
		first := c.run(t, "Say only this: aye one")
		c.run(t, "Say only this: aye two", "--resume", first.Session)
		if got := seen(); !strings.Contains(got, "Say only this: aye one") {
			t.Errorf("the resumed session has not the first message: %s", got)
		}
		if r := c.run(t, "Say only this: aye three", "--continue"); r.Result != "aye three" {
			t.Errorf("it said %q", r.Result)
		}
		if got := seen(); !strings.Contains(got, "Say only this: aye one") || !strings.Contains(got, "Say only this: aye two") {
			t.Errorf("the continued session has not the first messages: %s", got)
		}
	})
	t.Run("WebSearch by the server tool web_search", func(t *testing.T) {
		r := c.run(t, found("WebSearch")+block("WebSearch", map[string]string{"query": "tides of Brest"}))
		if !strings.Contains(r.Result, used.site.URL) {
			t.Errorf("it said %q", r.Result)
		}
	})
	t.Run("WebFetch, with a model that reads the page", func(t *testing.T) {
		site := httptest.NewTLSServer(used.site.Config.Handler) // it fetches nothing without TLS
		defer site.Close()
		authority := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: site.Certificate().Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		c := *c
		c.env = []string{"NODE_EXTRA_CA_CERTS=" + authority}
		r := c.run(t, found("WebFetch")+block("WebFetch", map[string]string{"url": site.URL + "/tides", "prompt": "When is high water?"}))
		if !strings.Contains(r.Result, "High water is at noon.") {
			t.Errorf("it said %q", r.Result)
		}
	})
	t.Run("tokens counted", func(t *testing.T) {
		c := *c
		c.env = []string{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1",
			"DISABLE_ERROR_REPORTING=1"} // without the first, it counts nothing
		r := c.run(t, "/context")
		if !s.logs("/v1/messages/count_tokens", "status=200") {
			t.Errorf("it counts no tokens: %q", r.Result)
		}
	})
	t.Run("Berth's MCP server", func(t *testing.T) {
		config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"berth": map[string]any{
			"type": "http", "url": s.url + "/mcp?container=claude"}}})
		if err != nil {
			t.Fatal(err)
		}
		r := c.run(t, found("mcp__berth__write", "mcp__berth__run")+
			block("mcp__berth__write", map[string]string{"path": "n", "content": "41"})+
			block("mcp__berth__run", map[string]string{"command": "echo $(($(cat n) + 1))"}),
			"--mcp-config", string(config))
		if !strings.Contains(r.Result, "42") {
			t.Errorf("it said %q", r.Result)
		}
	})
}
