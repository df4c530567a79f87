package berth

import "encoding/json"

// An Event is one step in a response's life. Streams send its JSON. Type determines
// which fields are set; all others are absent from the JSON.
//
// SequenceNumber starts at 0 and counts every event of its response without a
// gap. OutputIndex is the item's place in the response's output and never changes.
type Event struct {
	Type           EventType `json:"type"`
	SequenceNumber int64     `json:"sequence_number"`

	Response *Response      `json:"response,omitempty"` // response.created … response.completed
	Error    *EventError    `json:"error,omitempty"`    // error; see ErrorEvent
	Item     *Item          `json:"item,omitempty"`     // output_item.added, .done
	Part     *Content       `json:"part,omitempty"`     // content_part.*, reasoning_summary_part.*
	Output   []ShellContent `json:"output,omitempty"`   // shell_call_output_content.done

	ItemID       string `json:"item_id,omitempty"`
	OutputIndex  *int   `json:"output_index,omitempty"`
	ContentIndex *int   `json:"content_index,omitempty"`
	SummaryIndex *int   `json:"summary_index,omitempty"`
	CommandIndex *int   `json:"command_index,omitempty"`

	AnnotationIndex *int            `json:"annotation_index,omitempty"`
	Annotation      json.RawMessage `json:"annotation,omitempty"` // such as a ContainerFileCitation

	Delta     json.RawMessage    `json:"delta,omitempty"` // a string, or a ShellDelta
	Text      *string            `json:"text,omitempty"`
	Refusal   *string            `json:"refusal,omitempty"`
	Arguments *string            `json:"arguments,omitempty"`
	Command   *string            `json:"command,omitempty"`
	Code      *string            `json:"code,omitempty"` // code_interpreter_call_code.done; also that of EventError
	Name      string             `json:"name,omitempty"` // function_call_arguments.done
	Input     *string            `json:"input,omitempty"`
	Diff      *string            `json:"diff,omitempty"`
	Logprobs  *[]json.RawMessage `json:"logprobs,omitempty"`

	PartialImageIndex *int   `json:"partial_image_index,omitempty"`
	PartialImage      string `json:"partial_image_b64,omitempty"`
	Size              string `json:"size,omitempty"` // this and the next three: of a partial image
	Quality           string `json:"quality,omitempty"`
	Background        string `json:"background,omitempty"`
	OutputFormat      string `json:"output_format,omitempty"`

	*EventError // a copy of Error; see ErrorEvent
}

// An EventType is the "type" of an event.
type EventType string

const (
	EventCreated    EventType = "response.created"
	EventQueued     EventType = "response.queued"
	EventInProgress EventType = "response.in_progress"
	EventCompleted  EventType = "response.completed"
	EventIncomplete EventType = "response.incomplete"
	EventFailed     EventType = "response.failed"
	EventCancelled  EventType = "response.cancelled"
	EventErrored    EventType = "error"

	// Those of batches, of webhooks only.
	EventBatchCompleted EventType = "batch.completed"
	EventBatchFailed    EventType = "batch.failed"
	EventBatchExpired   EventType = "batch.expired"
	EventBatchCancelled EventType = "batch.cancelled"

	EventSandboxCreated      EventType = "sandbox.lifecycle.created"
	EventSandboxUpdated      EventType = "sandbox.lifecycle.updated"
	EventSandboxPaused       EventType = "sandbox.lifecycle.paused"
	EventSandboxResumed      EventType = "sandbox.lifecycle.resumed"
	EventSandboxCheckpointed EventType = "sandbox.lifecycle.checkpointed"
	EventSandboxKilled       EventType = "sandbox.lifecycle.killed"

	EventOutputItemAdded  EventType = "response.output_item.added"
	EventOutputItemDone   EventType = "response.output_item.done"
	EventContentPartAdded EventType = "response.content_part.added"
	EventContentPartDone  EventType = "response.content_part.done"
	EventOutputTextDelta  EventType = "response.output_text.delta"
	EventOutputTextDone   EventType = "response.output_text.done"
	EventAnnotationAdded  EventType = "response.output_text.annotation.added"
	EventRefusalDelta     EventType = "response.refusal.delta"
	EventRefusalDone      EventType = "response.refusal.done"

	EventReasoningTextDelta        EventType = "response.reasoning_text.delta"
	EventReasoningTextDone         EventType = "response.reasoning_text.done"
	EventReasoningSummaryPartAdded EventType = "response.reasoning_summary_part.added"
	EventReasoningSummaryPartDone  EventType = "response.reasoning_summary_part.done"
	EventReasoningSummaryDelta     EventType = "response.reasoning_summary_text.delta"
	EventReasoningSummaryDone      EventType = "response.reasoning_summary_text.done"

	EventFunctionArgumentsDelta EventType = "response.function_call_arguments.delta"
	EventFunctionArgumentsDone  EventType = "response.function_call_arguments.done"

	EventCustomInputDelta EventType = "response.custom_tool_call_input.delta"
	EventCustomInputDone  EventType = "response.custom_tool_call_input.done"

	EventPatchDiffDelta EventType = "response.apply_patch_call_operation_diff.delta"
	EventPatchDiffDone  EventType = "response.apply_patch_call_operation_diff.done"

	EventFileSearchInProgress EventType = "response.file_search_call.in_progress"
	EventFileSearchSearching  EventType = "response.file_search_call.searching"
	EventFileSearchCompleted  EventType = "response.file_search_call.completed"

	EventWebSearchInProgress EventType = "response.web_search_call.in_progress"
	EventWebSearchSearching  EventType = "response.web_search_call.searching"
	EventWebSearchCompleted  EventType = "response.web_search_call.completed"

	EventImageInProgress EventType = "response.image_generation_call.in_progress"
	EventImageGenerating EventType = "response.image_generation_call.generating"
	EventImagePartial    EventType = "response.image_generation_call.partial_image"
	EventImageCompleted  EventType = "response.image_generation_call.completed"

	EventMCPListInProgress EventType = "response.mcp_list_tools.in_progress"
	EventMCPListCompleted  EventType = "response.mcp_list_tools.completed"
	EventMCPListFailed     EventType = "response.mcp_list_tools.failed"
	EventMCPArgumentsDelta EventType = "response.mcp_call_arguments.delta"
	EventMCPArgumentsDone  EventType = "response.mcp_call_arguments.done"
	EventMCPCallInProgress EventType = "response.mcp_call.in_progress"
	EventMCPCallCompleted  EventType = "response.mcp_call.completed"
	EventMCPCallFailed     EventType = "response.mcp_call.failed"

	EventShellCommandAdded EventType = "response.shell_call_command.added"
	EventShellCommandDelta EventType = "response.shell_call_command.delta"
	EventShellCommandDone  EventType = "response.shell_call_command.done"
	EventShellOutputDelta  EventType = "response.shell_call_output_content.delta"
	EventShellOutputDone   EventType = "response.shell_call_output_content.done"

	EventCodeDelta        EventType = "response.code_interpreter_call_code.delta"
	EventCodeDone         EventType = "response.code_interpreter_call_code.done"
	EventCodeInProgress   EventType = "response.code_interpreter_call.in_progress"
	EventCodeInterpreting EventType = "response.code_interpreter_call.interpreting"
	EventCodeCompleted    EventType = "response.code_interpreter_call.completed"
)

// Final reports whether no event follows one of this type.
func (t EventType) Final() bool {
	switch t {
	case EventCompleted, EventIncomplete, EventFailed, EventCancelled:
		return true
	}
	return false
}

// An EventError is the body of an "error" event; response.failed follows it.
type EventError struct {
	Type    string  `json:"type"`
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
}

// ErrorEvent returns an "error" event. It has the error twice: in the fields of
// OpenAI's document, and in the object that OpenAI's service sends.
func ErrorEvent(e *EventError) Event {
	return Event{Type: EventErrored, Error: e, Code: &e.Code, EventError: e}
}

// A ShellDelta is a piece of a command's output.
type ShellDelta struct {
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
}

// DeltaText returns the text that the event adds to an item of a model's output. It
// returns false for events without such a text.
func (e *Event) DeltaText() (string, bool) {
	if len(e.Delta) == 0 || e.Delta[0] != '"' {
		return "", false
	}
	var text string
	err := json.Unmarshal(e.Delta, &text)
	return text, err == nil
}

// StringDelta returns a text delta as an Event carries it.
func StringDelta(s string) json.RawMessage {
	raw, _ := json.Marshal(s) // a string always marshals
	return raw
}
