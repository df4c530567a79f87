package berth

// The types of items about compaction.
const (
	ItemCompaction        ItemType = "compaction"
	ItemCompactionTrigger ItemType = "compaction_trigger" // in input, last: compact now
)

// A Compaction stands for the items before it. Only the server that made it knows
// what is in it.
type Compaction struct {
	ID               string   `json:"id"`
	Type             ItemType `json:"type"` // "compaction"
	EncryptedContent string   `json:"encrypted_content"`
}

// ContextManagement is an entry of a request's context_management.
type ContextManagement struct {
	Type             string `json:"type"`                        // "compaction"
	CompactThreshold *int   `json:"compact_threshold,omitempty"` // tokens; nil is the server's choice
}

// A CompactedResponse answers POST /v1/responses/compact: a window to go on from.
type CompactedResponse struct {
	ID        ResponseID `json:"id"`
	Object    string     `json:"object"` // "response.compaction"
	CreatedAt int64      `json:"created_at"`
	Output    []Item     `json:"output"` // messages that stay, and a Compaction
	Usage     Usage      `json:"usage"`  // of making it
}
