package anthropic

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model/dialogue"
)

// The computer tool of Anthropic, its versions and the betas that they need. Newer models know the
// second version, which differs by an action zoom that is off unless the request switches it on.
const (
	computerName = "computer"

	computerType = "computer_20250124"
	computerBeta = "computer-use-2025-01-24"

	zoomingComputerType = "computer_20251124"
	zoomingComputerBeta = "computer-use-2025-11-24"
)

// aboutComputer is what a model must know of the tool, which takes no description.
const aboutComputer = "The tool computer returns a screenshot after each action. It has no actions cursor_position, hold_key, left_mouse_down, left_mouse_up and zoom. Clicks and scrolls need a coordinate, a drag also a start_coordinate."

// elsewhere is the result of an action of a call whose screenshot another result has.
const elsewhere = "The last result of these calls says how it went, and has the screenshot."

const (
	wheelPixels = 120 // that one click of the wheel scrolls
	maxWait     = 30  // seconds
)

// computer returns the version of the computer tool that a model knows, and the beta that it needs.
func (g generation) computer() (toolType, beta string) {
	if g.since(4, 6) || g.major == 4 && g.minor == 5 && g.line == "opus" {
		return zoomingComputerType, zoomingComputerBeta
	}
	return computerType, computerBeta
}

// A computerInput is the input of a call of Anthropic's tool.
type computerInput struct {
	Action     string    `json:"action"`
	Coordinate []float64 `json:"coordinate,omitempty"`       // x, y
	Start      []float64 `json:"start_coordinate,omitempty"` // of a drag
	Text       *string   `json:"text,omitempty"`             // what to type, keys, or keys that are held
	Direction  string    `json:"scroll_direction,omitempty"` // up, down, left or right
	Amount     *float64  `json:"scroll_amount,omitempty"`    // clicks of the wheel
	Duration   *float64  `json:"duration,omitempty"`         // seconds
}

// A computerAction is an action in the arguments of the function. Nil fields are missing.
type computerAction struct {
	Type    string          `json:"type"`
	Button  string          `json:"button,omitempty"`
	X       *float64        `json:"x,omitempty"`
	Y       *float64        `json:"y,omitempty"`
	ScrollX float64         `json:"scroll_x,omitempty"`
	ScrollY float64         `json:"scroll_y,omitempty"`
	Path    []computerPoint `json:"path,omitempty"`
	Keys    []string        `json:"keys,omitempty"`
	Text    *string         `json:"text,omitempty"`
}

type computerPoint struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// computerArguments returns the arguments of the function for an input: one action, or a list. An input that
// is invalid, or has no equivalent, becomes arguments that the function refuses with the reason.
func computerArguments(input []byte, one bool) string {
	var in computerInput
	if json.Unmarshal(input, &in) != nil {
		return string(input)
	}
	actions := in.actions()
	if one && len(actions) == 1 {
		return string(marshal(map[string]any{"action": actions[0]}))
	}
	return string(marshal(map[string]any{"actions": actions}))
}

// buttons are the buttons of clicks.
var buttons = map[string]string{"left_click": "left", "right_click": "right", "middle_click": "wheel"}

// actions returns the actions for an input. An unknown one keeps its name, so that the function refuses it.
func (in computerInput) actions() []computerAction {
	x, y := in.at(in.Coordinate)
	switch in.Action {
	case "left_click", "right_click", "middle_click":
		return []computerAction{{Type: berth.ActionClick, Button: buttons[in.Action], X: x, Y: y, Keys: in.held()}}
	case "double_click":
		return []computerAction{{Type: berth.ActionDoubleClick, X: x, Y: y, Keys: in.held()}}
	case "triple_click":
		return []computerAction{{Type: berth.ActionDoubleClick, X: x, Y: y, Keys: in.held()},
			{Type: berth.ActionClick, Button: "left", X: x, Y: y, Keys: in.held()}}
	case "mouse_move":
		return []computerAction{{Type: berth.ActionMove, X: x, Y: y}}
	case "left_click_drag":
		drag := computerAction{Type: berth.ActionDrag, Keys: in.held()}
		if fromX, fromY := in.at(in.Start); fromX != nil && x != nil {
			drag.Path = []computerPoint{{*fromX, *fromY}, {*x, *y}}
		}
		return []computerAction{drag}
	case "scroll":
		return []computerAction{in.scroll(x, y)}
	case "type":
		return []computerAction{{Type: berth.ActionType, Text: in.Text}}
	case "key":
		return in.keys()
	case "wait":
		seconds := 1.0
		if in.Duration != nil {
			seconds = min(max(math.Ceil(*in.Duration), 1), maxWait)
		}
		waits := make([]computerAction, int(seconds))
		for i := range waits {
			waits[i].Type = berth.ActionWait // a second
		}
		return waits
	}
	return []computerAction{{Type: in.Action}} // also screenshot
}

// at returns a place, or nil.
func (in computerInput) at(place []float64) (x, y *float64) {
	if len(place) != 2 {
		return nil, nil
	}
	return &place[0], &place[1]
}

// held returns the keys that are held during an action.
func (in computerInput) held() []string {
	if in.Text == nil || *in.Text == "" {
		return nil
	}
	return chord(*in.Text)
}

// scroll returns the action for a scroll.
func (in computerInput) scroll(x, y *float64) computerAction {
	pixels := float64(wheelPixels)
	if in.Amount != nil {
		pixels *= *in.Amount
	}
	a := computerAction{Type: berth.ActionScroll, X: x, Y: y, Keys: in.held()}
	switch in.Direction {
	case "up":
		a.ScrollY = -pixels
	case "down":
		a.ScrollY = pixels
	case "left":
		a.ScrollX = -pixels
	case "right":
		a.ScrollX = pixels
	default:
		a.Type += " " + in.Direction
	}
	return a
}

// keys returns an action for each combination of keys of a text.
func (in computerInput) keys() []computerAction {
	text := ""
	if in.Text != nil {
		text = *in.Text
	}
	words := strings.Fields(text)
	if len(words) == 0 && text != "" {
		words = []string{"space"}
	}
	if len(words) == 0 {
		return []computerAction{{Type: berth.ActionKeypress}}
	}
	var all []computerAction
	for _, word := range words {
		all = append(all, computerAction{Type: berth.ActionKeypress, Keys: chord(word)})
	}
	return all
}

// keyNames are names of keys of X, which Claude writes, in lower case, and those of Responses.
var keyNames = map[string]string{
	"ctrl": "CTRL", "control": "CTRL", "control_l": "CTRL", "control_r": "CTRL", "shift": "SHIFT", "shift_l": "SHIFT",
	"shift_r": "SHIFT",
	"alt":     "ALT", "alt_l": "ALT", "alt_r": "ALT", "super": "SUPER", "super_l": "SUPER", "super_r": "SUPER",
	"cmd": "CMD", "meta": "META",
	"return": "ENTER", "enter": "ENTER", "kp_enter": "ENTER", "tab": "TAB", "escape": "ESC", "esc": "ESC",
	"space": "SPACE", "backspace": "BACKSPACE",
	"delete": "DELETE", "insert": "INSERT", "home": "HOME", "end": "END", "page_up": "PAGEUP", "prior": "PAGEUP",
	"page_down": "PAGEDOWN", "next": "PAGEDOWN",
	"left": "ARROWLEFT", "up": "ARROWUP", "right": "ARROWRIGHT", "down": "ARROWDOWN", "caps_lock": "CAPSLOCK",
	"plus": "+", "minus": "-", "comma": ",", "period": ".", "slash": "/", "backslash": "\\", "equal": "=",
	"semicolon": ";",
}

// xNames are the names of X for those of Responses, in upper case.
var xNames = map[string]string{
	"CTRL": "ctrl", "CONTROL": "ctrl", "SHIFT": "shift", "ALT": "alt", "OPTION": "alt", "SUPER": "super",
	"CMD": "super", "META": "super", "WIN": "super",
	"ENTER": "Return", "RETURN": "Return", "TAB": "Tab", "ESC": "Escape", "ESCAPE": "Escape", "SPACE": "space",
	"BACKSPACE": "BackSpace", "DELETE": "Delete", "INSERT": "Insert",
	"HOME": "Home", "END": "End", "PAGEUP": "Page_Up", "PAGEDOWN": "Page_Down", "ARROWLEFT": "Left", "ARROWUP": "Up",
	"ARROWRIGHT": "Right", "ARROWDOWN": "Down",
	"LEFT": "Left", "UP": "Up", "RIGHT": "Right", "DOWN": "Down", "CAPSLOCK": "Caps_Lock", "+": "plus", " ": "space",
}

// chord returns the keys of a combination such as ctrl+shift+t.
func chord(text string) []string {
	var names []string
	for rest, more := text, true; more; {
		var name string
		if name, rest, more = strings.Cut(rest, "+"); name == "" {
			name, more = "+", false // "+" or "ctrl++"
		}
		if known, ok := keyNames[strings.ToLower(name)]; ok {
			name = known
		}
		names = append(names, name)
	}
	return names
}

// combination returns keys in the form of Anthropic's tool.
func combination(keys []string) *string {
	if len(keys) == 0 {
		return nil
	}
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = key
		if known, ok := xNames[strings.ToUpper(key)]; ok {
			names[i] = known
		}
	}
	text := strings.Join(names, "+")
	return &text
}

// isComputer reports whether calls of a function are shown as those of Anthropic's tool: also those of the other
// computer tool, which an earlier response of the chain may have had.
func (v vendorTools) isComputer(function string) bool {
	return v.computer != "" && (function == berth.ToolComputer || function == berth.ToolComputerPreview)
}

// computerExchanges returns the calls that a model is shown for a call of a computer tool. The last one has
// the output.
func computerExchanges(c *dialogue.Call) []exchange {
	var arguments struct {
		Action  *computerAction  `json:"action"`
		Actions []computerAction `json:"actions"`
	}
	if json.Unmarshal(c.Arguments, &arguments) != nil || arguments.Action == nil && len(arguments.Actions) == 0 {
		return []exchange{{name: computerName, input: c.Arguments, output: c.Output}}
	}
	if arguments.Action != nil {
		arguments.Actions = append([]computerAction{*arguments.Action}, arguments.Actions...)
	}
	var all []exchange
	for _, in := range inputsOf(arguments.Actions) {
		x := exchange{name: computerName, input: marshal(in), output: dialogue.Output{Text: elsewhere}}
		if c.Output.Missing {
			x.output = c.Output
		}
		all = append(all, x)
	}
	all[len(all)-1].output = c.Output
	return all
}

// inputsOf returns the inputs of Anthropic's tool for actions, at least one.
func inputsOf(actions []computerAction) (all []computerInput) {
	for i := 0; i < len(actions); i++ {
		a := actions[i]
		place := a.place()
		switch a.Type {
		case berth.ActionClick:
			all = append(all, a.click(place))
		case berth.ActionDoubleClick:
			name := "double_click"
			if i+1 < len(actions) && actions[i+1].isThird(a) {
				name, i = "triple_click", i+1
			}
			all = append(all, computerInput{Action: name, Coordinate: place, Text: combination(a.Keys)})
		case berth.ActionMove:
			all = append(all, computerInput{Action: "mouse_move", Coordinate: place})
		case berth.ActionDrag:
			in := computerInput{Action: "left_click_drag", Text: combination(a.Keys)}
			if n := len(a.Path); n > 0 {
				in.Start, in.Coordinate = []float64{a.Path[0].X, a.Path[0].Y}, []float64{a.Path[n-1].X, a.Path[n-1].Y}
			}
			all = append(all, in)
		case berth.ActionScroll:
			all = append(all, a.scrolls(place)...)
		case berth.ActionKeypress:
			all = append(all, computerInput{Action: "key", Text: combination(a.Keys)})
		case berth.ActionType:
			all = append(all, computerInput{Action: "type", Text: a.Text})
		case berth.ActionWait:
			seconds := 1.0
			for i+1 < len(actions) && actions[i+1].Type == berth.ActionWait {
				seconds, i = seconds+1, i+1
			}
			all = append(all, computerInput{Action: "wait", Duration: &seconds})
		default: // a screenshot, or an action that was refused
			all = append(all, computerInput{Action: a.Type})
		}
	}
	return all
}

// place returns the coordinates of an action, or nil.
func (a computerAction) place() []float64 {
	if a.X == nil || a.Y == nil {
		return nil
	}
	return []float64{*a.X, *a.Y}
}

// isThird reports whether a click completes a double click to a triple click.
func (a computerAction) isThird(double computerAction) bool {
	return a.Type == berth.ActionClick && (a.Button == "left" || a.Button == "") && a.X != nil && a.Y != nil &&
		double.X != nil && double.Y != nil && *a.X == *double.X && *a.Y == *double.Y
}

// click returns the input for a click.
func (a computerAction) click(place []float64) computerInput {
	for name, button := range buttons {
		if button == a.Button {
			return computerInput{Action: name, Coordinate: place, Text: combination(a.Keys)}
		}
	}
	switch key := ""; a.Button { // the tool has no such buttons
	case "back":
		key = "alt+Left"
		return computerInput{Action: "key", Text: &key}
	case "forward":
		key = "alt+Right"
		return computerInput{Action: "key", Text: &key}
	}
	return computerInput{Action: "left_click", Coordinate: place, Text: combination(a.Keys)}
}

// scrolls returns the inputs for a scroll, one for each direction.
func (a computerAction) scrolls(place []float64) (all []computerInput) {
	add := func(pixels float64, back, forth string) {
		direction := forth
		if pixels < 0 {
			direction, pixels = back, -pixels
		}
		clicks := max(math.Round(pixels/wheelPixels), 1)
		all = append(all, computerInput{Action: "scroll", Coordinate: place, Text: combination(a.Keys),
			Direction: direction, Amount: &clicks})
	}
	if a.ScrollY != 0 || a.ScrollX == 0 {
		add(a.ScrollY, "up", "down")
	}
	if a.ScrollX != 0 {
		add(a.ScrollX, "left", "right")
	}
	return all
}
