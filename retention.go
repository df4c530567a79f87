package berth

// A Retained is a kind of objects that projects retain for a limited time.
type Retained string

// The kinds, in the order in which they are swept.
const (
	RetainedContainerLogs   Retained = "container_logs"   // entries of the logs of containers
	RetainedContainers      Retained = "containers"       // records of ended containers, with their logs
	RetainedSnapshots       Retained = "snapshots"        // of containers
	RetainedResponses       Retained = "responses"        // stored ones that have ended
	RetainedConversations   Retained = "conversations"    // with their items
	RetainedChatCompletions Retained = "chat_completions" // stored ones
	RetainedThreads         Retained = "threads"          // of assistants, with messages and runs
	RetainedFiles           Retained = "files"            // uploaded ones
	RetainedTraces          Retained = "traces"           // of clients' agents
	RetainedAudit           Retained = "audit"            // the audit record of the server; no project sets it
)

// RetainedKinds are all kinds.
var RetainedKinds = []Retained{RetainedContainerLogs, RetainedContainers, RetainedSnapshots, RetainedResponses,
	RetainedConversations, RetainedChatCompletions, RetainedThreads, RetainedFiles, RetainedTraces, RetainedAudit}

// A Retention says how long the objects of a project are retained. A kind without a value is retained until a client
// deletes it.
type Retention struct {
	Object      string             `json:"object"`       // "retention"
	ExpireAfter map[Retained]int64 `json:"expire_after"` // seconds after the creation
	Store       bool               `json:"store"`        // false: responses and chat completions are never stored

	// Own is what the project set for itself, which is stricter than the configuration of the server.
	Own RetentionSettings `json:"own"`
}

// RetentionSettings are what a project sets. Absent values are those of the server.
type RetentionSettings struct {
	ExpireAfter map[Retained]int64 `json:"expire_after,omitempty"` // seconds
	Store       *bool              `json:"store,omitempty"`
}

// A HoldID names a legal hold.
type HoldID string

// PrefixHold is the prefix of the ids of holds.
const PrefixHold = "hold_"

// A Hold stops the deletion of objects: of a whole project, of what belongs to an end user, or of one object.
type Hold struct {
	ID        HoldID    `json:"id"`
	Object    string    `json:"object"` // "hold"
	ProjectID ProjectID `json:"project_id"`
	EndUser   EndUserID `json:"end_user,omitempty"`  // whose objects are held
	ObjectID  string    `json:"object_id,omitempty"` // the object that is held, with its parts
	Reason    string    `json:"reason"`
	CreatedAt int64     `json:"created_at"`
	KeyID     KeyID     `json:"key_id,omitempty"` // whose request made it, or the id of a person
	Person    string    `json:"person,omitempty"`
	By        HoldLevel `json:"by"` // who may release it
}

// A HoldLevel says who made a hold, and so who may release it.
type HoldLevel string

const (
	HeldByProject      HoldLevel = "project"      // the project itself, or the organization
	HeldByOrganization HoldLevel = "organization" // the organization only
)

// PrefixRetentionRecord is the prefix of the ids of records of ended objects.
const PrefixRetentionRecord = "retrec_"

// A RetentionRecord says which objects of a kind ended together because of their age. The audit record has its digest.
type RetentionRecord struct {
	ID          string    `json:"id"`
	Object      string    `json:"object"` // "retention.record"
	ProjectID   ProjectID `json:"project_id"`
	Kind        Retained  `json:"kind"`
	ExpireAfter int64     `json:"expire_after"` // the policy: seconds after the creation
	Source      string    `json:"source"`       // of the policy: server or project
	Before      int64     `json:"before"`       // objects created before this moment ended
	CreatedAt   int64     `json:"created_at"`
	CompletedAt *int64    `json:"completed_at"` // null: the deletion continues
	Count       int64     `json:"count"`
	IDs         []string  `json:"ids,omitempty"`        // of the ended objects, sorted; lists omit them
	Digest      string    `json:"digest,omitempty"`     // sha256:… of the ids, each with a line feed after it
	Checkpoint  string    `json:"checkpoint,omitempty"` // of the audit record, which signs the entry of this record
}
