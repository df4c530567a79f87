package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// commands runs commands in the background by MCP. Whatever happens to the server and to the session, a command whose id
// the server has given ends with its output, and no call runs its command twice.
func (w *worker) commands() error {
	c := &mcpWorker{worker: w}
	defer c.leave()
	var container string
	for n := 0; !w.stopped(); n++ {
		word := fmt.Sprintf("%s.%d", w.name, n)
		var began mcpResult
		// Until its id arrives, a command may be run by several calls, each with a mark of its own.
		if err := c.call("run", func(try int) map[string]any {
			mark := fmt.Sprintf("run-%s.%d", word, try)
			return map[string]any{"background": true, "command": "[ ! -e " + mark + " ] || touch twice-" + mark + "; " +
				persist("touch "+mark+" && sync") + " sleep 0.2; echo " + word}
		}, &began); err != nil {
			return err
		}
		container = began.Container
		var ended mcpResult
		for ended.ExitCode == nil {
			if err := c.call("wait", func(int) map[string]any {
				return map[string]any{"command_id": began.CommandID, "wait_seconds": 5}
			}, &ended); err != nil {
				return err
			}
		}
		if *ended.ExitCode != 0 || ended.Stdout != word+"\n" {
			return fmt.Errorf("command %s printed %q and exited with %d, want %q", began.CommandID, ended.Stdout,
				*ended.ExitCode, word)
		}
		w.done.add("commands by MCP")
	}
	if container == "" {
		return nil
	}
	var marks mcpResult
	if err := c.call("run", func(int) map[string]any { return map[string]any{"command": "ls | grep ^twice || :"} },
		&marks); err != nil {
		return err
	}
	if marks.Stdout != "" {
		return fmt.Errorf("these commands were run twice:\n%s", marks.Stdout)
	}
	return w.remove("/containers/" + container)
}

// An mcpWorker calls tools in a container of its own, and begins a session anew when one is lost.
type mcpWorker struct {
	*worker
	session *sdk.ClientSession
}

func (c *mcpWorker) leave() {
	if c.session != nil {
		_ = c.session.Close()
		c.session = nil
	}
}

// call calls a tool until it succeeds. arguments gets the number of the attempt.
func (c *mcpWorker) call(tool string, arguments func(try int) map[string]any, out *mcpResult) error {
	var last error
	for try, deadline := 0, time.Now().Add(patience); time.Now().Before(deadline); try++ {
		if last = c.try(tool, arguments(try), out); last == nil {
			return nil
		}
		c.leave()
		c.repeats.Add(1)
		if !c.again(last) {
			return last
		}
	}
	return fmt.Errorf("%s: no answer within %v: %w", tool, patience, last)
}

func (c *mcpWorker) try(tool string, arguments map[string]any, out *mcpResult) error {
	if c.session == nil {
		s, err := sdk.NewClient(&sdk.Implementation{Name: c.name, Version: "1"}, nil).Connect(c.ctx,
			&sdk.StreamableClientTransport{HTTPClient: &http.Client{Timeout: patience},
				Endpoint: strings.TrimSuffix(c.base, "/v1") + "/mcp?container=" + c.name}, nil)
		if err != nil {
			return err
		}
		c.session = s
	}
	r, err := c.session.CallTool(c.ctx, &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return err
	}
	raw, err := json.Marshal(r.StructuredContent)
	if err != nil {
		return err
	}
	if r.IsError {
		text, _ := json.Marshal(r.Content)
		return errors.New(string(text))
	}
	*out = mcpResult{}
	return json.Unmarshal(raw, out)
}
