// Package codeinterpreter is the code_interpreter tool, with which a model runs code in a
// Jupyter kernel of a container.
package codeinterpreter

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/tool"
)

//go:embed codeinterpreter.md
var text string

var description = template.Must(template.New(name).Parse(text))

//go:embed codeinterpreter.json
var parameters json.RawMessage

// name is the function under which a model sees the tool.
const name = "code_interpreter"

// defaultKernel is the kernel of code that names none.
const defaultKernel = "python3"

// maxCode bounds the code of a call in bytes.
const maxCode = 1 << 20

// Containers runs the calls of responses.
type Containers interface {
	// Shell returns an Execer for the calls of the caller's response in a container. It
	// does not block. If the container has ended, the call reports that.
	Shell(caller berth.Caller, id berth.ContainerID) guest.Execer
	// Contents returns the programs installed in a container, or nil if they are not known. It does
	// not block.
	Contents(p berth.ProjectID, id berth.ContainerID) *berth.TemplateContents
}

// Limits are the limits of a call.
type Limits struct {
	Timeout time.Duration // of the code; default 10 minutes
	Output  int           // characters of text in the item; default 32,768
}

// A Tool is the code interpreter of one response.
type Tool struct {
	container berth.ContainerID
	exec      guest.Execer
	limits    Limits
	contents  *berth.TemplateContents // of the container; nil if not known
}

var _ tool.Tool = (*Tool)(nil)

// New returns the tool for a container.
func New(container berth.ContainerID, exec guest.Execer, limits Limits) *Tool {
	if limits.Timeout <= 0 {
		limits.Timeout = 10 * time.Minute
	}
	if limits.Output <= 0 {
		limits.Output = 32 << 10
	}
	return &Tool{container: container, exec: exec, limits: limits}
}

// Spec implements tool.Tool.
func (t *Tool) Spec() tool.Spec {
	shown := tool.Function(name, describe(t.contents), parameters)
	shown.Hosted = &berth.HostedFunction{Type: berth.ToolCode}
	return tool.Spec{Function: shown, Call: berth.ItemCodeInterpreterCall}
}

// describe returns the description of the tool in a container with contents, which may be
// nil.
func describe(c *berth.TemplateContents) string {
	about := struct {
		Python, None       bool
		Kernels, Installed string
	}{Python: true, Installed: tool.Installed(c)}
	if c != nil {
		about.Python, about.None = slices.Contains(c.Kernels, defaultKernel), len(c.Kernels) == 0
		about.Kernels = strings.Join(c.Kernels, ", ")
	}
	var text strings.Builder
	if err := description.Execute(&text, about); err != nil {
		panic(err) // a template of strings, written to memory
	}
	return text.String()
}

// NewCall implements tool.Tool. It starts the kernel, which takes about as long as the
// model takes to write the code.
func (t *Tool) NewCall(string) tool.Call {
	t.exec.Prepare(guest.ShellCall{Kernel: defaultKernel})
	return &call{tool: t, item: berth.CodeInterpreterCall{ID: berth.NewID(berth.PrefixCodeCall),
		Type:   berth.ItemCodeInterpreterCall,
		Status: berth.StatusInProgress, ContainerID: t.container, Outputs: []berth.CodeInterpreterOutput{}}}
}

// ResumeCall implements tool.Tool. The event with the whole code shows that the model
// has finished the call.
func (t *Tool) ResumeCall(item, _ berth.Item, stored []berth.Event) (tool.Call, error) {
	c := &call{tool: t}
	if err := item.Decode(&c.item); err != nil {
		return nil, err
	}
	if c.item.Berth != nil {
		c.mark = c.item.Berth.CallBerth
	}
	whole := false
	for _, ev := range stored {
		switch ev.Type {
		case berth.EventCodeDone:
			if ev.Code != nil {
				c.item.Code, whole = *ev.Code, true
			}
		case berth.EventCodeInterpreting:
			c.began = true
		case berth.EventCodeCompleted:
			c.completed = true
		}
	}
	if !whole {
		return nil, nil
	}
	c.invalid = check(c.item.Code)
	return c, nil
}

// A call is one call, from the first character of its arguments to its last output.
type call struct {
	tool *Tool
	item berth.CodeInterpreterCall
	mark berth.CallBerth // that the engine has set

	reader  tool.ArgumentReader
	shown   bool   // the first event was returned
	sent    int    // bytes of code that were returned as events
	invalid string // why the code cannot run, for the model

	began, completed bool // an earlier process has emitted these events
}

// Item implements tool.Call.
func (c *call) Item() berth.Item { return berth.NewItem(c.item) }

// Write implements tool.Call.
func (c *call) Write(arguments string) []berth.Event {
	events := c.open()
	for _, f := range c.reader.Write(arguments) {
		if f.Key == "code" && f.Index < 0 && f.Text != "" {
			events = append(events, c.delta(f.Text))
		}
	}
	return events
}

// open returns the call's first event, once.
func (c *call) open() []berth.Event {
	if c.shown {
		return nil
	}
	c.shown = true
	return []berth.Event{c.event(berth.Event{Type: berth.EventCodeInProgress})}
}

func (c *call) delta(code string) berth.Event {
	c.sent += len(code)
	return c.event(berth.Event{Type: berth.EventCodeDelta, Delta: berth.StringDelta(code)})
}

func (c *call) event(ev berth.Event) berth.Event {
	ev.ItemID = c.item.ID
	return ev
}

// Close implements tool.Call. It accepts arguments that are not JSON as code: some models
// write it so.
func (c *call) Close(arguments string) (events []berth.Event, item berth.Item, refusal string) {
	var args struct {
		Code *string `json:"code"`
	}
	code := ""
	err := json.Unmarshal([]byte(arguments), &args)
	switch {
	case err == nil && args.Code != nil:
		code = *args.Code
	case err != nil && !strings.HasPrefix(strings.TrimSpace(arguments), "{"):
		code = arguments
	}
	events = c.open()
	switch {
	case err != nil && code == "":
		c.invalid = fmt.Sprintf("The arguments of this call are not valid: %v. Nothing was run.", err)
	default:
		c.invalid = check(code)
	}
	if c.sent < len(code) { // the reader has seen a prefix of the code, or nothing
		events = append(events, c.delta(code[c.sent:]))
	}
	c.item.Code = code
	events = append(events, c.event(berth.Event{Type: berth.EventCodeDone, Code: &code}))
	done := c.item
	done.Status = berth.StatusCompleted
	return events, berth.NewItem(done), ""
}

// check returns a message to the model about code that cannot run, or "".
func check(code string) string {
	switch {
	case strings.TrimSpace(code) == "":
		return `This call has no code. Give it in "code".`
	case strings.ContainsRune(code, 0): // IPython answers such code with nothing at all
		return "The code contains a NUL character, which no program may. Nothing was run."
	case len(code) > maxCode:
		return fmt.Sprintf(
			"The code has %d bytes; %d are allowed. Nothing was run. Write long data to a file in several steps.",
			len(code), maxCode)
	}
	return ""
}

// kernelLine selects a kernel in the first line of code.
var kernelLine = regexp.MustCompile(`^\s*%%kernel[ \t]+([A-Za-z0-9][A-Za-z0-9._-]{0,63})[ \t]*(?:\r?\n|$)`)

// split returns the kernel of code, and the code without the line that names it.
func split(code string) (kernel, rest string) {
	m := kernelLine.FindStringSubmatchIndex(code)
	if m == nil {
		return defaultKernel, code
	}
	return code[m[2]:m[3]], code[m[1]:]
}
