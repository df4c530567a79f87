package berth

// A SandboxEvent is a change of a sandbox of E2B's API. Its JSON is the body of a delivery to a
// webhook of that API.
type SandboxEvent struct {
	ID          string            `json:"id"`      // a UUID
	Version     string            `json:"version"` // "v2"
	Type        EventType         `json:"type"`
	Timestamp   string            `json:"timestamp"`      // RFC 3339
	Category    string            `json:"event_category"` // "lifecycle"
	Label       string            `json:"event_label"`    // the type as a verb, such as "create"
	Data        *SandboxEventData `json:"event_data,omitempty"`
	SandboxID   string            `json:"sandbox_id"`
	ExecutionID string            `json:"sandbox_execution_id"` // a UUID; another one after each pause
	TemplateID  string            `json:"sandbox_template_id"`
	BuildID     string            `json:"sandbox_build_id"` // a build, or the digest of a template of the server
	TeamID      ProjectID         `json:"sandbox_team_id"`
}

// SandboxEventData is what a SandboxEvent says beside its type.
type SandboxEventData struct {
	Metadata   map[string]string `json:"sandbox_metadata,omitempty"`
	SetTimeout string            `json:"set_timeout,omitempty"` // RFC 3339, the new deadline
	Execution  *SandboxExecution `json:"execution,omitempty"`   // that has ended
}

// A SandboxExecution is the time from the start of a sandbox, or from its resumption, to its pause or its end.
type SandboxExecution struct {
	StartedAt string `json:"started_at"` // RFC 3339
	CPUCount  int    `json:"vcpu_count"`
	MemoryMB  int64  `json:"memory_mb"`
	Time      int64  `json:"execution_time"` // milliseconds
}

// NewSandboxEvent returns an event of the current version. Its other fields are the caller's.
func NewSandboxEvent(id string, kind EventType) SandboxEvent {
	labels := map[EventType]string{EventSandboxCreated: "create", EventSandboxUpdated: "update",
		EventSandboxPaused: "pause", EventSandboxResumed: "resume",
		EventSandboxCheckpointed: "checkpoint", EventSandboxKilled: "kill"}
	return SandboxEvent{ID: id, Version: "v2", Type: kind, Category: "lifecycle", Label: labels[kind]}
}
