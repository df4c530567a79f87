package berth

import "encoding/json"

// A ComputerTool lets the model use a computer: a browser or a desktop. The client controls it, or
// it is the desktop of a container. Its calls have a list of actions, those of ToolComputerPreview
// one action.
type ComputerTool struct {
	Type string `json:"type"` // ToolComputer or ToolComputerPreview

	// Environment is a string for ToolComputerPreview: windows, mac, linux, ubuntu or browser.
	// For ToolComputer it is the ShellToolEnvironment of the container with the desktop.
	Environment   json.RawMessage    `json:"environment,omitempty"`
	DisplayWidth  int                `json:"display_width,omitempty"`  // of ToolComputerPreview, in pixels
	DisplayHeight int                `json:"display_height,omitempty"` // of ToolComputerPreview, in pixels
	Berth         *ComputerToolBerth `json:"berth,omitempty"`
}

// A ComputerToolBerth extends OpenAI's computer tools.
type ComputerToolBerth struct {
	// of ToolComputerPreview: the container with the desktop
	Environment   *ShellToolEnvironment `json:"environment,omitempty"`
	DisplayWidth  int                   `json:"display_width,omitempty"`  // of ToolComputer in a container, in pixels
	DisplayHeight int                   `json:"display_height,omitempty"` // of ToolComputer in a container, in pixels
}

// A ComputerCall asks the client to act on its computer and to answer with a screenshot.
type ComputerCall struct {
	ID                  string           `json:"id,omitempty"`
	Type                ItemType         `json:"type"` // "computer_call"
	Status              Status           `json:"status,omitempty"`
	CallID              string           `json:"call_id"`
	Action              *ComputerAction  `json:"action,omitempty"`  // of ToolComputerPreview
	Actions             []ComputerAction `json:"actions,omitempty"` // of ToolComputer, in order
	PendingSafetyChecks []SafetyCheck    `json:"pending_safety_checks"`
	Berth               *ComputerBerth   `json:"berth,omitempty"` // of a call that the server carries out
}

// A ComputerBerth is what Berth adds to a computer call that the server carries out.
type ComputerBerth struct {
	CallBerth
	ContainerID ContainerID `json:"container_id"` // of the desktop
}

// The types of a ComputerAction.
const (
	ActionClick       = "click"
	ActionDoubleClick = "double_click"
	ActionDrag        = "drag"
	ActionKeypress    = "keypress"
	ActionMove        = "move"
	ActionScreenshot  = "screenshot"
	ActionScroll      = "scroll"
	ActionType        = "type"
	ActionWait        = "wait"
)

// A ComputerAction is one action. Which fields it has depends on its type; the others are
// absent. Coordinates are pixels from the top left corner.
type ComputerAction struct {
	Type    string    `json:"type"`
	Button  string    `json:"button,omitempty"` // of a click: left, right, wheel, back or forward
	X       *int      `json:"x,omitempty"`
	Y       *int      `json:"y,omitempty"`
	ScrollX *int      `json:"scroll_x,omitempty"`
	ScrollY *int      `json:"scroll_y,omitempty"`
	Path    []Point   `json:"path,omitempty"` // of a drag
	Keys    *[]string `json:"keys,omitempty"` // of a keypress; of others, the keys that are held
	Text    *string   `json:"text,omitempty"`
}

// A Point is a place on the screen.
type Point struct {
	X int `json:"x"`
	Y int `json:"y"`
}

// A SafetyCheck is a reason to ask the user before a call is carried out.
type SafetyCheck struct {
	ID      string  `json:"id"`
	Code    *string `json:"code"`
	Message *string `json:"message"`
}

// A ComputerCallOutput is the screen after the actions of a ComputerCall.
type ComputerCallOutput struct {
	ID                       string        `json:"id,omitempty"`
	Type                     ItemType      `json:"type"` // "computer_call_output"
	Status                   Status        `json:"status,omitempty"`
	CallID                   string        `json:"call_id"`
	Output                   Screenshot    `json:"output"`
	AcknowledgedSafetyChecks []SafetyCheck `json:"acknowledged_safety_checks,omitempty"`
	CurrentURL               string        `json:"current_url,omitempty"` // of a browser

	Berth *ComputerOutputBerth `json:"berth,omitempty"`
}

// A ComputerOutputBerth says why the server could not carry out all actions of a call.
type ComputerOutputBerth struct {
	Outcome string `json:"outcome"` // "failed" or "timeout"
	Message string `json:"message"`
	Blank   bool   `json:"blank,omitempty"` // the screenshot is an empty image, for there is none
}

// A Screenshot is an image of the screen: a URL, which may be a data: URL, or a file.
type Screenshot struct {
	Type     string `json:"type"` // "computer_screenshot"
	ImageURL string `json:"image_url,omitempty"`
	FileID   FileID `json:"file_id,omitempty"`
}
