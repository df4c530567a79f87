package store

// A Kind says what an object is.
type Kind string

// The kinds, with what they belong to.
const (
	KindConversation     Kind = "conversation"
	KindConversationItem Kind = "conversation_item" // of a conversation; a berth.Item
	KindConversationHold Kind = "conversation_hold" // of a conversation: see engine
)
