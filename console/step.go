package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/jsonscan"
)

// A step is a line of the tree of a run: a message or a call.
type step struct {
	Icon  string
	Label string
	Link  string // to its item on the page
	Took  int64  // in milliseconds; 0 is unknown
	User  bool   // a message of the user, with which a turn starts
	Bad   bool   // it has failed
}

// A callKind is how items of a type are named on pages.
type callKind struct{ icon, label string }

var callKinds = map[berth.ItemType]callKind{
	berth.ItemMessage:             {"message-square", "Message"},
	berth.ItemReasoning:           {"brain", "Reasoning"},
	berth.ItemShellCall:           {"terminal", "Shell"},
	berth.ItemShellCallOutput:     {"terminal", "Output"},
	berth.ItemLocalShellCall:      {"terminal", "Shell of the client"},
	berth.ItemCodeInterpreterCall: {"code", "Code"},
	berth.ItemTextEditorCall:      {"files", "Text editor"},
	berth.ItemFileSearchCall:      {"file-search", "File search"},
	berth.ItemWebSearchCall:       {"globe", "Web search"},
	berth.ItemMCPCall:             {"plug", "MCP"},
	berth.ItemMCPListTools:        {"plug", "Tools of an MCP server"},
	berth.ItemApprovalRequest:     {"hand", "Asks for approval"},
	berth.ItemApprovalResponse:    {"hand", "Approval"},
	berth.ItemComputerCall:        {"monitor", "Computer"},
	berth.ItemComputerCallOutput:  {"monitor", "Screenshot"},
	berth.ItemImageGenerationCall: {"image", "Image"},
	berth.ItemFunctionCall:        {"code", "Function"},
	berth.ItemFunctionCallOutput:  {"code", "Answer of the function"},
	berth.ItemCustomToolCall:      {"code", "Tool"},
	berth.ItemApplyPatchCall:      {"files", "Patch"},
	berth.ItemProgram:             {"code", "Program"},
	berth.ItemCompaction:          {"layers", "Compaction"},
}

// kind returns how the entry is named.
func (e *entry) kind() callKind {
	if k, ok := callKinds[e.Type()]; ok {
		return k
	}
	return callKind{"circle-dashed", strings.ReplaceAll(string(e.Type()), "_", " ")}
}

// Icon returns the name of the entry's icon.
func (e *entry) Icon() string { return e.kind().icon }

// Label returns the name of the entry's type.
func (e *entry) Label() string { return e.kind().label }

// A callView is the parts of a call that a page shows, whatever its tool.
type callView struct {
	Note     string // what was called
	Parts    []callPart
	Passages []passageView
	Picture  template.URL // of a screenshot; "" without one
	Error    string
}

// A callPart is a text of a call.
type callPart struct{ Label, Text string }

// A passageView is a passage that a file search has found.
type passageView struct {
	File  string
	Score string
	Text  string
}

// Call returns what a page shows of a call of any other tool than the shell and the code interpreter.
func (e *entry) Call() (c callView) {
	var call struct {
		Name        string          `json:"name"`
		ServerLabel string          `json:"server_label"`
		Arguments   string          `json:"arguments"`
		Input       json.RawMessage `json:"input"`
		Output      json.RawMessage `json:"output"`
		Error       json.RawMessage `json:"error"`
		Queries     []string        `json:"queries"`
		Results     []struct {
			Filename string  `json:"filename"`
			Score    float64 `json:"score"`
			Text     string  `json:"text"`
		} `json:"results"`
		Action  json.RawMessage        `json:"action"`
		Actions []berth.ComputerAction `json:"actions"`
		Reason  string                 `json:"reason"`
	}
	if e.growing || e.Decode(&call) != nil {
		return callView{Parts: []callPart{{"So far", clip(e.text.String(), shownGrowing)}}}
	}
	switch e.Type() {
	case berth.ItemMCPCall, berth.ItemFunctionCall, berth.ItemCustomToolCall, berth.ItemApprovalRequest:
		c.Note = approval{Name: call.Name, Server: call.ServerLabel}.Title()
		c.add("Arguments", cmp.Or(call.Arguments, textOf(call.Input)))
		c.add("Answer", textOf(call.Output))
	case berth.ItemFunctionCallOutput:
		c.add("Answer", textOf(call.Output))
	case berth.ItemFileSearchCall:
		c.Note = strings.Join(call.Queries, ", ")
		for _, r := range call.Results {
			c.Passages = append(c.Passages, passageView{r.Filename, fmt.Sprintf("%.2f", r.Score),
				clip(r.Text, shownGrowing)})
		}
	case berth.ItemWebSearchCall:
		var action struct{ Type, Query, URL string }
		_ = json.Unmarshal(call.Action, &action) // what fits is shown
		c.Note = cmp.Or(action.Query, action.URL, action.Type)
	case berth.ItemComputerCall:
		var names []string
		for _, a := range call.Actions {
			names = append(names, a.Type)
		}
		var one berth.ComputerAction
		if json.Unmarshal(call.Action, &one) == nil && one.Type != "" {
			names = append(names, one.Type)
		}
		c.Note = strings.Join(names, ", ")
		c.add("Actions", string(e.Raw()))
	case berth.ItemComputerCallOutput:
		var out berth.ComputerCallOutput
		if e.Decode(&out) != nil {
			break
		}
		if url := out.Output.ImageURL; len(url) <= maxPicture && pictureURL.MatchString(url) {
			c.Picture = template.URL(url)
		}
	default:
		c.add("Item", string(e.Raw()))
	}
	c.Note = line(c.Note)
	if text := textOf(call.Error); text != "" {
		c.Error = clip(text, shownGrowing)
	}
	return c
}

// add adds a text, if it is not empty. JSON is indented.
func (c *callView) add(label, text string) {
	if text = strings.TrimSpace(text); text == "" {
		return
	}
	if json.Valid([]byte(text)) {
		text = string(jsonscan.Indent([]byte(text)))
	}
	c.Parts = append(c.Parts, callPart{label, clip(text, shown)})
}

// textOf returns the text of a JSON string, or other JSON as it is; "" for null.
func textOf(raw json.RawMessage) string {
	var text string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return ""
	case json.Unmarshal(raw, &text) == nil:
		return text
	}
	return string(raw)
}

// stepsOf returns the steps of the responses of a page. The output of a command belongs to its call.
func stepsOf(turns []*turnView) (steps []step) {
	for _, turn := range turns {
		for _, e := range turn.Input {
			if e.Role() == "user" {
				steps = append(steps, step{"message-square", titleOf(e.Text()), "#item-" + e.ID(), 0, true, false})
			}
		}
		for _, e := range turn.Output {
			steps = addStep(steps, e)
		}
	}
	return steps
}

// addStep adds the step of an item of a response's output.
func addStep(steps []step, e *entry) []step {
	s := step{Icon: e.Icon(), Label: e.Label(), Link: "#item-" + e.ID(), Took: e.Took}
	switch e.Type() {
	case berth.ItemMessage:
		s.Label = titleOf(e.Text())
	case berth.ItemShellCall:
		if commands := e.Commands(); len(commands) > 0 {
			s.Label = line(commands[0])
		}
	case berth.ItemCodeInterpreterCall:
		s.Label = line(e.Code())
	case berth.ItemShellCallOutput:
		for _, o := range e.Outputs() {
			if o.Outcome != nil && failed(*o.Outcome) && len(steps) > 0 {
				steps[len(steps)-1].Bad = true
			}
		}
		return steps
	case berth.ItemReasoning:
	default:
		if e.growing {
			break
		}
		call := e.Call()
		s.Bad = call.Error != ""
		if call.Note != "" {
			s.Label += ": " + call.Note
		}
	}
	s.Label = cmp.Or(s.Label, e.Label())
	return append(steps, s)
}
