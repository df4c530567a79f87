package messages

import (
	"embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
)

// schemas hold the function of each tool that Anthropic defines and the client runs.
//
//go:embed client/*.json
var schemas embed.FS

// names are the names of the tools that Anthropic defines, by family, if the client names none.
var names = map[string]string{"bash": "bash", "text_editor": "str_replace_based_edit_tool", "memory": "memory",
	"computer": "computer", familySearch: "web_search", familyFetch: "web_fetch", familyCode: "code_execution",
	familySearchRegex: familySearchRegex, familySearchBM25: familySearchBM25}

// offeredName returns the name of a tool.
func (p *toolParam) offeredName() string {
	if p.Name != "" {
		return p.Name
	}
	return names[p.family()]
}

// clientFunction returns a tool that Anthropic defines and the client runs as a function with the input that
// Anthropic's models send. A model that was not trained on the tool reads what it does.
func (p *toolParam) clientFunction() (berth.FunctionTool, error) {
	raw, err := schemas.ReadFile("client/" + p.family() + ".json")
	if err != nil {
		return berth.FunctionTool{}, fmt.Errorf("read tool: %w", err)
	}
	var f berth.FunctionTool
	if err := json.Unmarshal(raw, &f); err != nil {
		return f, fmt.Errorf("decode tool: %w", err)
	}
	f.Type, f.Name, f.Strict = berth.ToolFunction, p.offeredName(), new(bool)
	size := strings.NewReplacer("WIDTH", strconv.Itoa(p.Width), "HEIGHT", strconv.Itoa(p.Height))
	f.Description = size.Replace(f.Description)
	return f, nil
}
