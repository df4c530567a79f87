package e2e

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A pythonClient is a client from PyPI and the program that uses it.
type pythonClient struct {
	name     string // on PyPI
	env      string // the environment that scripts/setup makes of python/ENV.txt
	program  string
	everyday bool // make test runs it

	limit time.Duration // of the program. Default: 5 minutes
}

var pythonClients = []pythonClient{
	{name: "openai", env: "sdk", program: "use_openai.py", everyday: true},
	{name: "openai", env: "openai2", program: "use_openai.py"},
	{name: "openai-agents", env: "sdk", program: "use_agents.py", everyday: true},
	{name: "e2b", env: "e2b", program: "use_e2b.py", everyday: true},
	{name: "e2b-desktop", env: "desktop", program: "use_e2b_desktop.py"},
	{name: "e2b-code-interpreter", env: "e2b", program: "use_e2b_code.py", everyday: true},
	{name: "langchain-openai", env: "frameworks", program: "use_langchain.py"},
	{name: "langgraph", env: "frameworks", program: "use_langgraph.py"},
	{name: "crewai", env: "openai2", program: "use_crewai.py"},
	{name: "autogen-agentchat", env: "frameworks", program: "use_autogen.py"},
	{name: "llama-index-llms-openai", env: "openai2", program: "use_llama_index.py"},
	{name: "pydantic-ai-slim", env: "frameworks", program: "use_pydantic_ai.py"},
	{name: "agent-framework-openai", env: "agents", program: "use_agent_framework.py"},
	{name: "strands-agents", env: "agents", program: "use_strands.py"},
	{name: "google-adk", env: "agents", program: "use_google_adk.py"},
	{name: "dspy", env: "agents", program: "use_dspy.py"},
	{name: "instructor", env: "agents", program: "use_instructor.py"},
	{name: "semantic-kernel", env: "kernel", program: "use_semantic_kernel.py"},
	{name: "gptme", env: "kernel", program: "use_gptme.py"},
	{name: "aider-chat", env: "aider", program: "use_aider.py"},
	{name: "harbor", env: "harbor", program: "use_harbor.py", limit: 15 * time.Minute},
	{name: "smolagents", env: "e2bagents", program: "use_smolagents.py"},
	{name: "e2b-haystack", env: "e2bagents", program: "use_haystack.py"},
	{name: "inspect-ai", env: "inspect", program: "use_inspect.py", limit: 15 * time.Minute},
	{name: "swe-rex", env: "swerex", program: "use_swerex.py"},
	{name: "mini-swe-agent", env: "swerex", program: "use_mini_swe_agent.py"},
	{name: "mcp", env: "mcp", program: "use_mcp.py"},
	{name: "open-terminal", env: "openterminal", program: "use_open_terminal.py"},
	{name: "langchain-mcp-adapters", env: "mcpclients", program: "use_langchain_mcp.py"},
	{name: "anthropic", env: "anthropic", program: "use_anthropic.py"},
	{name: "claude-agent-sdk", env: "anthropic", program: "use_claude_agent.py"},
	{name: "langchain-anthropic", env: "anthropic", program: "use_langchain_anthropic.py"},
	{name: "litellm", env: "anthropic", program: "use_litellm.py"},
}

// TestClientsPython runs the programs of e2e/python, each with a client from PyPI.
func TestClientsPython(t *testing.T) {
	keep := logAtEnd(t)
	used := newServices(t)
	s := used.server(t)
	for _, c := range pythonClients {
		t.Run(c.name+"/"+c.env, func(t *testing.T) {
			if !c.everyday {
				skipClient(t)
			}
			if out := c.run(t, s.url, used.env()...); t.Failed() {
				keep(t.Name(), out)
			}
		})
	}
}

// lock returns the file that pins the packages of the client's environment.
func (c pythonClient) lock() string { return filepath.Join("python", c.env+".txt") }

// run runs the client's program, compares the jobs that it did with its titles, and returns what it printed.
func (c pythonClient) run(t *testing.T, url string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(c.limit, 5*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, c.python(t), "-W", "ignore", c.program)
	cmd.Dir = "python"
	home := t.TempDir()
	cmd.Env = append(append(os.Environ(), env...), "OPENAI_BASE_URL="+url+"/v1", "OPENAI_API_KEY=none",
		"BERTH_BIN="+binary(t), "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url, "E2B_VOLUME_API_URL="+url, "HOME="+home,
		"XDG_CACHE_HOME="+home,
		"XDG_DATA_HOME="+home, "PYTHONDONTWRITEBYTECODE=1",
		// What these clients would send to their makers.
		"CREWAI_DISABLE_TELEMETRY=true", "CREWAI_TRACING_ENABLED=false", "OTEL_SDK_DISABLED=true",
		"LANGSMITH_TRACING=false", "ANONYMIZED_TELEMETRY=false", "LITELLM_LOCAL_MODEL_COST_MAP=True")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("%s: %v\n%s", c.program, err, &out)
		return out.String()
	}
	for _, title := range jobs(t, filepath.Join("python", c.program)) {
		if !strings.Contains(out.String(), "ok "+title+"\n") {
			t.Errorf("%s did not do %q; it printed:\n%s", c.program, title, &out)
		}
	}
	return out.String()
}

// python returns the interpreter of the client's environment, or skips the test.
// The environment is named by its lock file's digest, so it is never stale.
func (c pythonClient) python(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "berth-test", "python", fmt.Sprintf("%s-%.6x", c.env,
		sha256.Sum256([]byte(read(t, c.lock())))))
	if _, err := os.Stat(filepath.Join(dir, ".complete")); err != nil {
		t.Skipf("skipped: what %s locks is not installed; make test-clients installs it", c.lock())
	}
	return filepath.Join(dir, "bin", "python")
}
