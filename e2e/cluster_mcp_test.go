package e2e

import (
	"fmt"
	"testing"
)

// TestClusterMCP uses sessions of MCP through three servers behind a proxy that sends each request to the next one: each
// session has one container, and what runs in the background is found on all of them.
func TestClusterMCP(t *testing.T) {
	f := newFleet(t, "1m")
	s := &server{t: t, url: f.url, state: f.servers[0].state}
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		c := mcpSession(t, s, "?container=box-"+version, version, nil)
		var container string
		for i := range 2 * len(f.servers) {
			out := mcpTool(t, c, "run", map[string]any{"command": fmt.Sprintf("echo %d >>$HOME/turns; wc -l <$HOME/turns", i)})
			if container == "" {
				container = out.Container
			}
			if out.Container != container {
				t.Errorf("%s, call %d: got the container %s, want %s", version, i, out.Container, container)
			}
		}
		running := mcpTool(t, c, "run", map[string]any{"background": true, "command": "echo before; exec tail -f /dev/null"})
		for range len(f.servers) {
			if out := mcpTool(t, c, "wait", map[string]any{"command_id": running.CommandID, "wait_seconds": 1}); out.Stdout !=
				"before\n" || out.Status != "running" {
				t.Errorf("%s: got %+v of a command that runs", version, out)
			}
		}
		mcpTool(t, c, "stop", map[string]any{"command_id": running.CommandID})
	}
}
