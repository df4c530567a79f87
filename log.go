package berth

// A ContainerLog is one command that ran in a container, with the beginning and the
// end of what it printed.
type ContainerLog struct {
	ID             LogID        `json:"id"`
	Object         string       `json:"object"`          // "container.log"
	SequenceNumber int64        `json:"sequence_number"` // in the container, from 0, in the order in which commands ended
	CreatedAt      int64        `json:"created_at"`      // when it began
	ContainerID    ContainerID  `json:"container_id"`
	Source         LogSource    `json:"source"`
	ResponseID     ResponseID   `json:"response_id,omitempty"` // whose call it was
	CallID         string       `json:"call_id,omitempty"`     // the id of the item that is the call
	KeyID          KeyID        `json:"key_id,omitempty"`      // with which it was asked for
	RequestID      string       `json:"request_id,omitempty"`  // of the request that asked for it
	User           string       `json:"user,omitempty"`        // in the container; empty is the default one
	Command        string       `json:"command"`
	Outcome        ShellOutcome `json:"outcome"`
	DurationMS     int64        `json:"duration_ms"`
	Stdout         LogText      `json:"stdout"` // of a process with a terminal, all that it wrote there
	Stderr         LogText      `json:"stderr"`
}

// A LogSource says by which way a command came.
type LogSource string

const (
	LogShell LogSource = "shell" // a response's shell
	LogExec  LogSource = "exec"  // the container's guest: berth exec and attach, E2B's protocol
)

// OutcomeUnknown is how a command ended that nobody heard end.
const OutcomeUnknown = "unknown"

// A LogText is what a command printed, without its middle if that is long.
type LogText struct {
	Text  string `json:"text"`
	Bytes int64  `json:"bytes"` // that were printed
}

// What is told to whoever follows a container's log.
const (
	EventContainerLog     EventType = "container.log"      // one command
	EventContainerLogDone EventType = "container.log.done" // the container has ended, and so has its log
)
