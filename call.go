package berth

import (
	"bytes"
	"encoding/json"
	"slices"
)

// A FunctionCall asks the client to run one of its functions.
type FunctionCall struct {
	ID        string   `json:"id,omitempty"`
	Type      ItemType `json:"type"` // "function_call"
	Status    Status   `json:"status,omitempty"`
	Arguments string   `json:"arguments"` // JSON as the model wrote it
	CallID    string   `json:"call_id"`
	Name      string   `json:"name"`
	Namespace string   `json:"namespace,omitempty"` // of the tool, if it is in one
}

// A FunctionCallOutput is the client's answer to a FunctionCall.
type FunctionCallOutput struct {
	ID     string          `json:"id,omitempty"`
	Type   ItemType        `json:"type"` // "function_call_output"
	Status Status          `json:"status,omitempty"`
	CallID string          `json:"call_id"`
	Output json.RawMessage `json:"output"` // a string, or a list of input contents
}

// NewFunctionCallOutput returns a completed FunctionCallOutput as an item. output must be valid
// JSON, or nil; as it may hold images, it is copied without a look at it.
func NewFunctionCallOutput(id, callID string, output json.RawMessage) (Item, error) {
	raw, err := json.Marshal(FunctionCallOutput{ID: id, Type: ItemFunctionCallOutput, Status: StatusCompleted,
		CallID: callID})
	if err != nil {
		return Item{}, err
	}
	var it Item
	if output == nil {
		err = it.UnmarshalJSON(raw)
		return it, err
	}
	raw = bytes.TrimSuffix(raw, []byte("null}"))
	err = it.UnmarshalJSON(slices.Concat(raw, output, []byte("}")))
	return it, err
}

// A CustomToolCall asks the client to run one of its custom tools.
type CustomToolCall struct {
	ID        string   `json:"id,omitempty"`
	Type      ItemType `json:"type"` // "custom_tool_call"
	Status    Status   `json:"status,omitempty"`
	CallID    string   `json:"call_id"`
	Input     string   `json:"input"` // in the tool's own format
	Name      string   `json:"name"`
	Namespace string   `json:"namespace,omitempty"`
}

// A CustomToolCallOutput is the answer to a CustomToolCall.
type CustomToolCallOutput struct {
	ID     string          `json:"id,omitempty"`
	Type   ItemType        `json:"type"` // "custom_tool_call_output"
	Status Status          `json:"status,omitempty"`
	CallID string          `json:"call_id"`
	Output json.RawMessage `json:"output"` // a string, or a list of input contents
}

// A ShellCall requests that commands run in a container.
type ShellCall struct {
	ID          string            `json:"id,omitempty"`
	Type        ItemType          `json:"type"` // "shell_call"
	Status      Status            `json:"status,omitempty"`
	Action      ShellAction       `json:"action"`
	CallID      string            `json:"call_id"`
	Environment *ShellEnvironment `json:"environment"`
	Berth       *CallBerth        `json:"berth,omitempty"`
}

// A CallBerth is what Berth adds to a hosted call.
type CallBerth struct {
	ApprovalRequestID string `json:"approval_request_id,omitempty"` // the request that the client approved
	CheckRound        int    `json:"check_round,omitempty"`         // of a call that checks an answer, from 1
	// why a complete call cannot run; its output states it too
	Invalid string `json:"invalid,omitempty"`
}

// A ShellAction is the commands of one shell call, run concurrently.
type ShellAction struct {
	Commands        []string `json:"commands"`
	MaxOutputLength *int     `json:"max_output_length"` // characters per stream; nil is the server's default
	TimeoutMS       *int     `json:"timeout_ms"`        // for each command; nil is the server's default
}

// A ShellEnvironment names where a shell call runs: "container_reference" with
// its container, or "local" for a shell on the client's side.
type ShellEnvironment struct {
	Type        string      `json:"type"`
	ContainerID ContainerID `json:"container_id,omitempty"`
}

// A ShellCallOutput is what the commands of one ShellCall printed.
type ShellCallOutput struct {
	ID              string         `json:"id,omitempty"`
	Type            ItemType       `json:"type"` // "shell_call_output"
	Status          Status         `json:"status,omitempty"`
	CallID          string         `json:"call_id"`
	MaxOutputLength *int           `json:"max_output_length"`
	Output          []ShellContent `json:"output"` // one per command, in their order
	Berth           *ShellBerth    `json:"berth,omitempty"`
}

// ShellBerth extends OpenAI's shell call output with the changes to files of the
// working directory while the commands ran. It is absent if no file changed or if
// the directory has too many files to scan.
type ShellBerth struct {
	Files     []FileChange `json:"files"`                // by path, 200 at most
	MoreFiles int          `json:"more_files,omitempty"` // number of changed files beyond those in Files
}

// A FileChange is {"path":"/mnt/data/a.csv","type":"created","bytes":12}.
type FileChange struct {
	Path  string `json:"path"`
	Type  string `json:"type"`  // "created", "updated" or "deleted"
	Bytes int64  `json:"bytes"` // size now; of a deleted file, its last size
}

// ShellContent is what one command printed and how it ended.
type ShellContent struct {
	Outcome ShellOutcome `json:"outcome"`
	Stderr  string       `json:"stderr"`
	Stdout  string       `json:"stdout"`
}

// A ShellOutcome is {"type":"exit","exit_code":0} or {"type":"timeout"}.
type ShellOutcome struct {
	Type     string `json:"type"`
	ExitCode *int   `json:"exit_code,omitempty"`
}

// A CodeInterpreterCall is code that runs in a Jupyter kernel of a container, with what it
// printed and displayed.
type CodeInterpreterCall struct {
	ID          string                  `json:"id,omitempty"`
	Type        ItemType                `json:"type"` // "code_interpreter_call"
	Status      Status                  `json:"status,omitempty"`
	Code        string                  `json:"code"`
	ContainerID ContainerID             `json:"container_id"`
	Outputs     []CodeInterpreterOutput `json:"outputs"`
	Berth       *CodeInterpreterBerth   `json:"berth,omitempty"`
}

// A CodeInterpreterOutput is text, of type "logs", or an image, of type "image", as a data:
// URL.
type CodeInterpreterOutput struct {
	Type string `json:"type"`
	Logs string `json:"logs,omitempty"`
	URL  string `json:"url,omitempty"`
}

// CodeInterpreterBerth extends OpenAI's code interpreter call.
type CodeInterpreterBerth struct {
	CallBerth
	// Outcome is "error" if the code raised an exception, "timeout" if it was interrupted,
	// "died" if the kernel ended, "failed" if the code could not run, and otherwise empty.
	Outcome string `json:"outcome,omitempty"`
	// the kernel was started again for this call, without earlier variables
	Restarted bool         `json:"restarted,omitempty"`
	Files     []FileChange `json:"files,omitempty"`      // changed files of the working directory, 200 at most
	MoreFiles int          `json:"more_files,omitempty"` // number of changed files beyond those in Files
	// Results are what the code displayed, by media type, other than plain text and images.
	Results []map[string]json.RawMessage `json:"results,omitempty"`
}

// A LocalShellCall asks the client to run one command.
type LocalShellCall struct {
	ID     string           `json:"id,omitempty"`
	Type   ItemType         `json:"type"` // "local_shell_call"
	Status Status           `json:"status,omitempty"`
	Action LocalShellAction `json:"action"`
	CallID string           `json:"call_id"`
}

// A LocalShellAction is a command with its environment, user and directory.
type LocalShellAction struct {
	Type             string            `json:"type"` // "exec"
	Command          []string          `json:"command"`
	Env              map[string]string `json:"env"`
	TimeoutMS        *int              `json:"timeout_ms,omitempty"`
	User             *string           `json:"user,omitempty"`
	WorkingDirectory *string           `json:"working_directory,omitempty"`
}

// A LocalShellCallOutput is the result of a LocalShellCall.
type LocalShellCallOutput struct {
	ID     string   `json:"id,omitempty"`
	Type   ItemType `json:"type"` // "local_shell_call_output"
	Status Status   `json:"status,omitempty"`
	CallID string   `json:"call_id"`
	Output string   `json:"output"`
}

// An ApplyPatchCall asks the client to change one file.
type ApplyPatchCall struct {
	ID        string         `json:"id,omitempty"`
	Type      ItemType       `json:"type"` // "apply_patch_call"
	Status    Status         `json:"status,omitempty"`
	CallID    string         `json:"call_id"`
	Operation PatchOperation `json:"operation"`
}

// The types of a PatchOperation.
const (
	PatchCreate = "create_file"
	PatchUpdate = "update_file"
	PatchDelete = "delete_file"
)

// A PatchOperation is a change to one file.
type PatchOperation struct {
	Type string  `json:"type"`
	Diff *string `json:"diff,omitempty"` // nil for delete_file
	Path string  `json:"path"`           // relative to the client's workspace
}

// An ApplyPatchCallOutput is the result of an ApplyPatchCall.
type ApplyPatchCallOutput struct {
	ID     string   `json:"id,omitempty"`
	Type   ItemType `json:"type"`   // "apply_patch_call_output"
	Status Status   `json:"status"` // completed or failed
	CallID string   `json:"call_id"`
	Output *string  `json:"output,omitempty"` // for the model to read
}

// A ToolSearchCall asks the client, or the server, for tools that the model has not seen yet.
type ToolSearchCall struct {
	ID        string          `json:"id,omitempty"`
	Type      ItemType        `json:"type"` // "tool_search_call"
	Status    Status          `json:"status,omitempty"`
	Arguments json.RawMessage `json:"arguments"` // an object
	CallID    *string         `json:"call_id"`   // nil if the server executes it
	Execution string          `json:"execution"` // "client" or "server"
}

// The values of ToolSearchCall.Execution.
const (
	ExecutionClient = "client"
	ExecutionServer = "server"
)

// A ToolSearchOutput is the tools that a ToolSearchCall found.
type ToolSearchOutput struct {
	ID        string   `json:"id,omitempty"`
	Type      ItemType `json:"type"` // "tool_search_output"
	Status    Status   `json:"status,omitempty"`
	CallID    *string  `json:"call_id"`
	Execution string   `json:"execution"`
	Tools     []Tool   `json:"tools"`
}

// A Program is JavaScript that calls tools. Unlike other calls it has no status: it is shown
// when it is complete.
type Program struct {
	ID          string   `json:"id,omitempty"`
	Type        ItemType `json:"type"` // "program"
	CallID      string   `json:"call_id"`
	Code        string   `json:"code"`
	Fingerprint string   `json:"fingerprint"` // opaque; what the program needs to be continued
}

// A ProgramOutput is the result of a Program, or of the part of it that ran.
type ProgramOutput struct {
	ID     string   `json:"id,omitempty"`
	Type   ItemType `json:"type"`   // "program_output"
	Status Status   `json:"status"` // completed, or incomplete if the program failed
	CallID string   `json:"call_id"`
	Result string   `json:"result"`
}

// A ToolCaller is the "caller" of a call: the model, of type "direct", or a program.
type ToolCaller struct {
	Type     string `json:"type"`
	CallerID string `json:"caller_id,omitempty"` // call_id of the program

	Berth *CallerBerth `json:"berth,omitempty"`
}

// A CallerBerth is what Berth adds to the caller of a call that a program made.
type CallerBerth struct {
	Call int `json:"call"` // number of the call among those of the program, from 1
}

// The types of a ToolCaller. In the allowed_callers of a tool, a program is "programmatic".
const (
	CallerDirect       = "direct"
	CallerProgram      = "program"
	CallerProgrammatic = "programmatic"
)
