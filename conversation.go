package berth

import (
	"bytes"
	"encoding/json"
)

// A Conversation is a list of items that outlives the responses which add to it.
// A response in a conversation gets its items as context and, when it completes,
// appends its own input and output.
type Conversation struct {
	ID        ConversationID    `json:"id"`
	Object    string            `json:"object"` // "conversation"
	CreatedAt int64             `json:"created_at"`
	Metadata  map[string]string `json:"metadata"` // never null
}

// A ResponseConversation names the conversation that a response belongs to.
type ResponseConversation struct {
	ID ConversationID `json:"id"`
}

// UnmarshalJSON accepts the short form, which is the id alone.
func (c *ResponseConversation) UnmarshalJSON(b []byte) error {
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &c.ID)
	}
	type plain ResponseConversation
	return json.Unmarshal(b, (*plain)(c))
}
