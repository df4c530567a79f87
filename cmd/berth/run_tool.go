package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/berth-run/berth"
)

// toolUsage is the help text of --tool.
const toolUsage = `tool besides the shell: web_search, code_interpreter, image_generation, computer, file_search=STORE[,STORE], mcp=LABEL=URL, or a tool as JSON; may be repeated`

// plainTools are the tools that need no more than their name.
var plainTools = map[string]map[string]any{
	"web_search":       {"type": berth.ToolWebSearch},
	"code_interpreter": {"type": berth.ToolCode, "container": map[string]any{"type": "auto"}},
	"image_generation": {"type": berth.ToolImageGeneration},
	"computer":         {"type": berth.ToolComputer},
}

// parseTools returns the tools that --tool names.
func parseTools(values []string) ([]map[string]any, error) {
	var tools []map[string]any
	for _, value := range values {
		name, rest, _ := strings.Cut(value, "=")
		label, address, _ := strings.Cut(rest, "=")
		var tool map[string]any
		switch {
		case strings.HasPrefix(value, "{"):
			if err := json.Unmarshal([]byte(value), &tool); err != nil {
				return nil, badUsage("--tool %s: %w", value, err)
			}
		case rest == "" && plainTools[name] != nil:
			tool = plainTools[name]
		case name == "file_search" && rest != "":
			tool = map[string]any{"type": berth.ToolFileSearch, "vector_store_ids": strings.Split(rest, ",")}
		case name == "mcp" && label != "" && strings.Contains(address, "://"):
			tool = map[string]any{"type": berth.ToolMCP, "server_label": label, "server_url": address}
		default:
			return nil, badUsage(
				"--tool %s: must be web_search, code_interpreter, image_generation, computer, file_search=STORE, mcp=LABEL=URL, or a tool as JSON",
				value)
		}
		tools = append(tools, tool)
	}
	return tools, nil
}

// resolveTools returns the tools of --tool with the ids of vector stores in place of names.
func (t *task) resolveTools(ctx context.Context, c *client) ([]any, error) {
	var tools []any
	for _, tool := range t.parsed {
		if names, ok := tool["vector_store_ids"].([]string); ok {
			for i, name := range names {
				id, err := vectorStores.resolve(ctx, c, name)
				if err != nil {
					return nil, err
				}
				names[i] = id
			}
		}
		tools = append(tools, tool)
	}
	return tools, nil
}
