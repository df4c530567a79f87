package berth

// The types of items about compaction.
const (
	ItemCompaction        ItemType = "compaction"
	ItemCompactionTrigger ItemType = "compaction_trigger" // in input, last: compact now
)

// A Compaction replaces the items before it. Only the server that created it can
// decrypt its content.
type Compaction struct {
	ID               string   `json:"id"`
	Type             ItemType `json:"type"` // "compaction"
	EncryptedContent string   `json:"encrypted_content"`
}

// ContextManagement is an entry of a request's context_management.
type ContextManagement struct {
	Type             string          `json:"type"`                        // "compaction"
	CompactThreshold *int            `json:"compact_threshold,omitempty"` // tokens; nil means the server's default
	Edit             *CompactionEdit `json:"edit,omitempty"`              // set by the Messages API only
}

// A CompactionEdit is a compaction as the Messages API has it: before a turn, the first one too, and never after the
// last.
type CompactionEdit struct {
	Instructions string `json:"instructions,omitempty"` // for the summary, beside the server's
	Pause        bool   `json:"pause,omitempty"`        // the response ends after a compaction, with ReasonCompaction
}

// A CompactedResponse is the answer to POST /v1/responses/compact: items from which
// the client can continue.
type CompactedResponse struct {
	ID        ResponseID `json:"id"`
	Object    string     `json:"object"` // "response.compaction"
	CreatedAt int64      `json:"created_at"`
	Output    []Item     `json:"output"` // the remaining messages and a Compaction
	Usage     Usage      `json:"usage"`  // of the compaction itself
}
