package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A nodeClient is a client from npm and the files of node:test that use it.
type nodeClient struct {
	name     string
	alias    string // the name that it is installed by, if it is another
	dir      string // has its lock file and its tests
	tests    []string
	everyday bool // make test runs it
}

var nodeClients = []nodeClient{
	{name: "openai", dir: "node", everyday: true,
		tests: []string{"responses.test.mjs", "chat.test.mjs", "conversations.test.mjs", "assistants.test.mjs",
			"files.test.mjs", "context.test.mjs", "socket.test.mjs", "webhooks.test.mjs", "tools.test.mjs",
			"stores.test.mjs", "skills.test.mjs"}},
	{name: "@openai/agents", dir: "node", tests: []string{"agents.test.mjs"}, everyday: true},
	{name: "e2b", dir: "node", tests: []string{"e2b.test.mjs", "e2b-ports.test.mjs", "e2b-templates.test.mjs",
		"e2b-many.test.mjs"}, everyday: true},
	{name: "@e2b/desktop", dir: "desktop", tests: []string{"desktop.test.mjs"}},
	{name: "@openai/agents-extensions", dir: "node", tests: []string{"e2b-agents.test.mjs"}},
	{name: "@e2b/code-interpreter", dir: "node", tests: []string{"interpreter.test.mjs"}, everyday: true},
	{name: "openai", alias: "openai-6", dir: "frameworks", tests: []string{"openai6.test.mjs"}},
	{name: "ai", dir: "frameworks", tests: []string{"ai.test.mjs"}},
	{name: "@langchain/openai", dir: "frameworks", tests: []string{"langchain.test.mjs"}},
	{name: "@langchain/langgraph", dir: "frameworks", tests: []string{"langgraph.test.mjs"}},
	{name: "@mastra/core", dir: "frameworks", tests: []string{"mastra.test.mjs"}},
	{name: "llamaindex", dir: "frameworks", tests: []string{"llamaindex.test.mjs"}},
	{name: "@modelcontextprotocol/sdk", dir: "mcpclients", tests: []string{"sdk.test.mjs"}},
	{name: "@modelcontextprotocol/client", dir: "mcpclients", tests: []string{"client.test.mjs"}},
	{name: "@modelcontextprotocol/inspector", dir: "mcpclients", tests: []string{"inspector.test.mjs"}},
	{name: "@modelcontextprotocol/conformance", dir: "mcpclients", tests: []string{"conformance.test.mjs"}},
	{name: "@anthropic-ai/sdk", dir: "anthropic", tests: []string{"anthropic.test.mjs"}},
	{name: "@anthropic-ai/claude-agent-sdk", dir: "anthropic", tests: []string{"agent-sdk.test.mjs"}},
	{name: "@ai-sdk/anthropic", dir: "anthropic", tests: []string{"ai-anthropic.test.mjs"}},
}

// frameworksNode is the oldest major version of Node.js that the clients in
// e2e/frameworks run on.
const frameworksNode = 20

// TestClientsNode runs the tests of the clients from npm that are libraries.
func TestClientsNode(t *testing.T) {
	keep := logAtEnd(t)
	used := newServices(t)
	s := used.server(t)
	for _, c := range nodeClients {
		t.Run(filepath.Base(c.tests[0]), func(t *testing.T) {
			if !c.everyday {
				skipClient(t)
			}
			if out := c.run(t, s, used.env()...); t.Failed() {
				keep(t.Name(), out)
			}
		})
	}
}

// run runs the client's tests, and returns what they printed.
func (c nodeClient) run(t *testing.T, s *server, env ...string) string {
	t.Helper()
	skipWithout(t, filepath.Join(c.dir, "node_modules", ".berth-lock"))
	if v := nodeVersion(t); c.dir == "frameworks" && v < frameworksNode {
		t.Skipf("skipped: %s needs Node.js %d; this is %d", c.name, frameworksNode, v)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	node := "node"
	if c.dir == "anthropic" { // its clients need Node.js 22
		node = "node_modules/.bin/node"
	}
	cmd := exec.CommandContext(ctx, node, append([]string{"--test", "--test-concurrency=4"}, c.tests...)...)
	cmd.Dir = c.dir
	if os.Getenv("BERTH_TEST_CLIENTS") != "" {
		env = append([]string{"BERTH_E2B_RUNS=100"}, env...)
	}
	cmd.Env = append(append(os.Environ(), env...), "OPENAI_BASE_URL="+s.url+"/v1", "OPENAI_API_KEY=none",
		"E2B_API_URL="+s.url, "E2B_SANDBOX_URL="+s.url, "E2B_VOLUME_API_URL="+s.url,
		"E2B_API_KEY=e2b_"+strings.Repeat("0", 40), "BERTH_BIN="+binary(t), "BERTH_STATE="+s.state,
		// What these clients would send to their makers.
		"MASTRA_TELEMETRY_DISABLED=1", "LANGSMITH_TRACING=false")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return string(out)
}

// skipWithout skips the test if a file that scripts/setup makes is not there.
func skipWithout(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Skipf("skipped: no %s; make test-clients installs it", path)
	}
}

// nodeVersion returns the major version of Node.js.
func nodeVersion(t *testing.T) int {
	t.Helper()
	out, err := exec.Command("node", "--version").Output()
	if err != nil {
		t.Skipf("skipped: no Node.js: %v", err)
	}
	found := regexp.MustCompile(`^v(\d+)`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("node --version printed %q", out)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
