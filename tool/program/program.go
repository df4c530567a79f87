package program

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/program/javascript"
)

//go:embed program.md
var description string

//go:embed program.json
var parameters json.RawMessage

// name is the function under which a model sees the tool.
const name = berth.ToolProgrammatic

const (
	maxCode   = 1 << 20  // bytes of a program
	maxResult = 64 << 10 // bytes of a result in its item
)

// A Tool runs the programs of one response.
type Tool struct{ runner *javascript.Runner }

var _ tool.Programmer = (*Tool)(nil)

// Spec implements tool.Tool.
func (*Tool) Spec() tool.Spec {
	return tool.Spec{Function: tool.Function(name, description, parameters), Call: berth.ItemProgram}
}

// Offer implements tool.Programmer.
func (t *Tool) Offer(callable []berth.FunctionTool) berth.FunctionTool {
	f := t.Spec().Function
	var text strings.Builder
	text.WriteString(strings.TrimRight(description, "\n"))
	if len(callable) == 0 {
		text.WriteString("\n\nThere is no tool that programs can call. Do not use this function.")
	} else {
		text.WriteString("\n\nThe tools:\n")
	}
	for _, c := range callable {
		fmt.Fprintf(&text, "\n## tools.%s\n\n%s\n", c.Name, strings.TrimSpace(c.Description))
		if len(c.Parameters) > 0 {
			fmt.Fprintf(&text, "\nIts argument, as a JSON schema: %s\n", c.Parameters)
		}
	}
	f.Description = text.String()
	return f
}

// NewCall implements tool.Tool.
func (t *Tool) NewCall(callID string) tool.Call {
	return &call{tool: t, item: berth.Program{ID: berth.NewID(berth.PrefixProgram), Type: berth.ItemProgram,
		CallID: callID}}
}

// ResumeCall implements tool.Tool. The program starts again from its beginning.
func (t *Tool) ResumeCall(item, _ berth.Item, _ []berth.Event) (tool.Call, error) {
	if item.Status() == berth.StatusIncomplete {
		return nil, nil
	}
	c := &call{tool: t, shown: true}
	if err := item.Decode(&c.item); err != nil {
		return nil, err
	}
	if !c.record.decode(c.item.Fingerprint) {
		return nil, berth.Invalid("input",
			"The fingerprint of program '%s' was not made by this server. Send the program as it was received, or its output with it.",
			c.item.ID)
	}
	return c, nil
}

// A record is what a program must find again when it is resumed. The fingerprint of its item
// holds it. It is no secret, and a client that changes it changes its own program only.
type record struct {
	Version int    `json:"v"`
	Time    int64  `json:"t"` // when the program was started, in milliseconds since 1970
	Seed    uint64 `json:"s"` // of its random numbers
}

// recordVersion changes when programs of older servers can no longer be resumed.
const recordVersion = 1

func (r record) encode() string {
	raw, _ := json.Marshal(r) // numbers always marshal
	return base64.RawURLEncoding.EncodeToString(raw)
}

func (r *record) decode(fingerprint string) bool {
	raw, err := base64.RawURLEncoding.DecodeString(fingerprint)
	return err == nil && json.Unmarshal(raw, r) == nil && r.Version == recordVersion
}

// A call is one program.
type call struct {
	tool    *Tool
	item    berth.Program
	record  record
	shown   bool
	session *javascript.Session // nil until it runs
}

var _ tool.Program = (*call)(nil)

// Item implements tool.Call. As on the hosted service, the item has no code when it is
// opened. It is shown when the code is known.
func (c *call) Item() berth.Item {
	if !c.shown {
		return berth.Item{}
	}
	opened := c.item
	opened.Code = ""
	return berth.NewItem(opened)
}

// Write implements tool.Call.
func (*call) Write(string) []berth.Event { return nil }

// Close implements tool.Call. It accepts arguments that are not JSON as code: some models
// write it so.
func (c *call) Close(arguments string) (events []berth.Event, item berth.Item, refusal string) {
	var args struct {
		Code *string `json:"code"`
	}
	err := json.Unmarshal([]byte(arguments), &args)
	switch {
	case err == nil && args.Code != nil:
		c.item.Code = *args.Code
	case err != nil && !strings.HasPrefix(strings.TrimSpace(arguments), "{"):
		c.item.Code = arguments
	}
	switch {
	case strings.TrimSpace(c.item.Code) == "" && err != nil:
		return nil, berth.Item{}, fmt.Sprintf("The arguments of this call are not valid: %v. Nothing was run.", err)
	case strings.TrimSpace(c.item.Code) == "":
		return nil, berth.Item{}, `This call has no code. Give it in "code".`
	case len(c.item.Code) > maxCode:
		return nil, berth.Item{}, fmt.Sprintf("The code has %d bytes; %d are allowed. Nothing was run.",
			len(c.item.Code), maxCode)
	}
	c.record = record{Version: recordVersion, Time: time.Now().UnixMilli(), Seed: rand.Uint64()}
	c.item.Fingerprint, c.shown = c.record.encode(), true
	return nil, berth.NewItem(c.item), ""
}

// Run implements tool.Call. The engine runs programs by Next.
func (*call) Run(context.Context, tool.Emitter) error {
	return berth.Errorf(berth.CodeInternal, "a program runs round by round")
}

// Next implements tool.Program.
func (c *call) Next(ctx context.Context, answers []tool.Answer) (tool.Round, error) {
	if c.session == nil {
		c.session = c.tool.runner.Start(javascript.Program{Code: c.item.Code, Time: c.record.Time, Seed: c.record.Seed})
	}
	given := make([]javascript.Answer, len(answers))
	for i, a := range answers {
		given[i] = javascript.Answer{Value: a.Value, Error: a.Error}
	}
	if answers == nil {
		given = nil
	}
	step, err := c.session.Step(ctx, given)
	if err != nil {
		return tool.Round{}, err
	}
	if step.Result != nil {
		return c.output(*step.Result), nil
	}
	calls := make([]tool.ProgramCall, len(step.Calls))
	for i, made := range step.Calls {
		calls[i] = tool.ProgramCall{Name: made.Name, Arguments: made.Arguments}
	}
	return tool.Round{Calls: calls}, nil
}

// output returns the items of the program's output. The item is opened as completed, as on
// the hosted service.
func (c *call) output(r javascript.Result) tool.Round {
	out := berth.ProgramOutput{ID: berth.NewID(berth.PrefixProgramOutput), Type: berth.ItemProgramOutput,
		Status: berth.StatusCompleted, CallID: c.item.CallID}
	opened := berth.NewItem(out)
	out.Result = tool.Shorten(r.Text, maxResult)
	if r.Error != "" {
		out.Status = berth.StatusIncomplete
		out.Result = strings.TrimLeft(out.Result+"\n[The program failed] "+tool.Shorten(r.Error, maxResult/4), "\n")
	}
	return tool.Round{Opened: opened, Output: berth.NewItem(out)}
}

// Stop implements tool.Program.
func (c *call) Stop() {
	if c.session != nil {
		c.session.Close()
		c.session = nil
	}
}
