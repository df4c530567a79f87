package store

// A Kind says what an object is.
type Kind string

// The kinds of objects. Their packages say what is in them.
const (
	KindConversation      Kind = "conversation"
	KindConversationItem  Kind = "conversation_item" // a berth.Item
	KindConversationHold  Kind = "conversation_hold"
	KindCompletion        Kind = "chat.completion"
	KindCompletionMessage Kind = "chat.completion.message"
	KindAssistant         Kind = "assistant"
	KindThread            Kind = "thread"
	KindMessage           Kind = "thread.message"
	KindRun               Kind = "thread.run"
	KindNextRun           Kind = "thread.run.next"
	KindPrompt            Kind = "prompt"
	KindPromptVersion     Kind = "prompt.version"
	KindIdempotency       Kind = "idempotency"
	KindContainerLog      Kind = "container.log"
	KindContainerOpenLog  Kind = "container.log.open"
	KindContainerNetwork  Kind = "container.network"
	KindContainerStart    Kind = "container.start"
	KindSnapshot          Kind = "container.snapshot"
	KindVolume            Kind = "volume"
	KindImport            Kind = "bundle.import"
	KindProject           Kind = "project"
	KindEndpoint          Kind = "webhook_endpoint"
	KindDelivery          Kind = "webhook_delivery"
)

// OfContainer is what an object belongs to whose parent is a container and no object.
const OfContainer Kind = ""

// Kinds is the table of all kinds, with the kinds that an object of each may belong to. An
// object of a kind without one belongs to no other. What an object belongs to takes it
// along when it is deleted.
var Kinds = map[Kind][]Kind{
	KindConversation:      nil,
	KindConversationItem:  {KindConversation},
	KindConversationHold:  {KindConversation},
	KindCompletion:        nil,
	KindCompletionMessage: {KindCompletion},
	KindAssistant:         nil,
	KindThread:            nil,
	KindMessage:           {KindThread},
	KindRun:               {KindThread},
	KindNextRun:           {KindThread, KindRun},
	KindPrompt:            nil,
	KindPromptVersion:     {KindPrompt},
	KindIdempotency:       nil,
	KindContainerLog:      {OfContainer},
	KindContainerOpenLog:  {OfContainer},
	KindContainerNetwork:  {OfContainer},
	KindContainerStart:    {OfContainer},
	KindSnapshot:          nil,
	KindVolume:            nil,
	KindImport:            nil,
	KindProject:           nil,
	KindEndpoint:          nil,
	KindDelivery:          {KindEndpoint},
}
