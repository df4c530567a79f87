package berth

// A ContainerLog is one command that ran in a container, with the start and the end
// of its output.
type ContainerLog struct {
	ID     LogID  `json:"id"`
	Object string `json:"object"` // "container.log"
	// counts the container's commands from 0, in the order of their ends
	SequenceNumber int64        `json:"sequence_number"`
	CreatedAt      int64        `json:"created_at"` // when it started
	ContainerID    ContainerID  `json:"container_id"`
	Source         LogSource    `json:"source"`
	ResponseID     ResponseID   `json:"response_id,omitempty"` // the response that made the call
	CallID         string       `json:"call_id,omitempty"`     // the id of the call's item
	KeyID          KeyID        `json:"key_id,omitempty"`      // the key of the client's request
	RequestID      string       `json:"request_id,omitempty"`  // the client's request
	User           string       `json:"user,omitempty"`        // in the container; empty means the default user
	Command        string       `json:"command"`
	Outcome        ShellOutcome `json:"outcome"`
	// Unix milliseconds; absent from entries of earlier versions
	StartedAtMS int64   `json:"started_at_ms,omitempty"`
	DurationMS  int64   `json:"duration_ms"`
	Stdout      LogText `json:"stdout"` // for a process with a terminal, its whole output
	Stderr      LogText `json:"stderr"`
}

// A LogSource is the interface through which a command was started.
type LogSource string

const (
	LogShell LogSource = "shell" // a response's shell
	LogExec  LogSource = "exec"  // the container's guest: berth exec and attach, E2B's protocol
)

// OutcomeUnknown is the outcome of a command whose end the server did not observe.
const OutcomeUnknown = "unknown"

// A LogText is a command's output. The middle of a long output is cut out.
type LogText struct {
	Text  string `json:"text"`
	Bytes int64  `json:"bytes"` // size of the whole output
}

// The types of events that followers of a container's log get.
const (
	EventContainerLog     EventType = "container.log"      // one command
	EventContainerLogDone EventType = "container.log.done" // the container has ended, and so has its log
)
