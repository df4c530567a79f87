// Package texteditor is the text editor of Anthropic's code execution: with it a model views, creates and edits files
// of a container.
package texteditor

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/tool"
)

//go:embed texteditor.md
var description string

//go:embed texteditor.json
var parameters json.RawMessage

// Name is the function under which a model sees the tool.
const Name = "text_editor_code_execution"

// Containers connects to the guests of containers.
type Containers interface {
	// Connect waits until a container runs. The connection is shared, and the caller must not close it. The container
	// does not expire until release.
	Connect(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (client *guest.Client, release func(),
		err error)
	// Shell returns an Execer for commands in a container. It does not block.
	Shell(caller berth.Caller, id berth.ContainerID) guest.Execer
}

// A Tool is the text editor of one response.
type Tool struct {
	containers Containers
	exec       guest.Execer
	project    berth.ProjectID
	container  berth.ContainerID
}

var _ tool.Tool = (*Tool)(nil)

// Spec implements tool.Tool.
func (*Tool) Spec() tool.Spec {
	return tool.Spec{Function: tool.Function(Name, strings.TrimSpace(description), parameters),
		Call: berth.ItemTextEditorCall}
}

// NewCall implements tool.Tool.
func (t *Tool) NewCall(callID string) tool.Call {
	return &call{tool: t, item: berth.TextEditorCall{ID: berth.NewID(berth.PrefixTextEditorCall),
		Type: berth.ItemTextEditorCall, Status: berth.StatusInProgress, CallID: callID, Input: json.RawMessage("{}")}}
}

// ResumeCall implements tool.Tool. The events of a call do not show its input, so the model is called again.
func (*Tool) ResumeCall(berth.Item, berth.Item, []berth.Event) (tool.Call, error) { return nil, nil }

// An input is what a call asks for.
type input struct {
	Command   string  `json:"command"`
	Path      string  `json:"path"`
	ViewRange []int   `json:"view_range"`
	FileText  *string `json:"file_text"`
	OldStr    *string `json:"old_str"`
	NewStr    string  `json:"new_str"`
}

// The commands.
const (
	commandView    = "view"
	commandCreate  = "create"
	commandReplace = "str_replace"
)

// A call is one command.
type call struct {
	tool    *Tool
	item    berth.TextEditorCall
	in      input
	invalid string // why the command is not carried out, for the model
}

func (c *call) Item() berth.Item { return berth.NewItem(c.item) }

func (*call) Write(string) []berth.Event { return nil }

func (c *call) Close(arguments string) ([]berth.Event, berth.Item, string) {
	raw := []byte(strings.TrimSpace(arguments))
	if err := json.Unmarshal(raw, &c.in); err != nil || len(raw) == 0 || raw[0] != '{' {
		c.invalid = "The input of this call is not valid: it is no JSON object with the fields of the tool."
	} else {
		c.invalid = c.in.problem()
	}
	if len(raw) > 0 && raw[0] == '{' && json.Valid(raw) {
		c.item.Input = raw
	}
	return nil, c.Item(), ""
}

// maxPath bounds a path in bytes.
const maxPath = 4096

// problem returns why the input cannot be carried out, for the model, or "". It completes the path.
func (in *input) problem() string {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	switch {
	case in.Path == "":
		return `This call needs a "path".`
	case len(in.Path) > maxPath || !utf8.ValidString(in.Path) || strings.ContainsFunc(in.Path, control):
		return fmt.Sprintf(`The "path" must have at most %d bytes of UTF-8 without control characters.`, maxPath)
	}
	if !path.IsAbs(in.Path) {
		in.Path = path.Join(berth.WorkDir, in.Path)
	}
	in.Path = path.Clean(in.Path)
	switch in.Command {
	case commandView:
		if r := in.ViewRange; len(r) > 0 && (len(r) != 2 || r[0] < 1 || r[1] != -1 && r[1] < r[0]) {
			return `"view_range" must be two line numbers in order, from 1. The second may be -1.`
		}
	case commandCreate:
		if in.FileText == nil {
			return `create needs a "file_text".`
		}
	case commandReplace:
		if in.OldStr == nil || *in.OldStr == "" {
			return `str_replace needs an "old_str" that is not empty.`
		}
	default:
		return fmt.Sprintf(`The command %q is unknown. Use "view", "create" or "str_replace".`, tool.Shorten(in.Command, 64))
	}
	return ""
}

// Run implements tool.Call. What the model got wrong is a result.
func (c *call) Run(ctx context.Context, out tool.Emitter) error {
	c.item.Result = c.exec(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	c.item.Result.ContainerID, c.item.Status = c.tool.container, berth.StatusCompleted
	if c.item.Result.Error != "" {
		c.item.Status = berth.StatusFailed
	}
	return out.Done(ctx, out.Call(), c.Item())
}
