package store

// A Kind is the type of an object.
type Kind string

// The kinds of objects. The packages that use them define their content.
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
	KindNeighbour         Kind = "container.neighbour" // a container's place in its group
	KindSnapshot          Kind = "container.snapshot"
	KindVolume            Kind = "volume"
	KindImport            Kind = "bundle.import"
	KindProject           Kind = "project"
	KindEndpoint          Kind = "webhook_endpoint"
	KindDelivery          Kind = "webhook_delivery"
	KindVectorStore       Kind = "vector_store"
	KindVectorFile        Kind = "vector_store.file"
	KindVectorText        Kind = "vector_store.text" // parts of a file
	KindVectorBatch       Kind = "vector_store.files_batch"
	KindVectorJob         Kind = "vector_store.job" // a file that is to be read
	KindUpload            Kind = "upload"
	KindUploadPart        Kind = "upload.part"
	KindBatch             Kind = "batch"
	KindBatchLine         Kind = "batch.line" // the result of a request
	KindBatchJob          Kind = "batch.job"  // a batch that has not ended
	KindSkill             Kind = "skill"
	KindSkillVersion      Kind = "skill.version"
	KindSkillInline       Kind = "skill.inline"       // of a container that starts
	KindSandbox           Kind = "e2b.sandbox"        // what a container has as a sandbox of E2B
	KindE2BTemplate       Kind = "e2b.template"       // of E2B's API: a template that a project built
	KindE2BBuild          Kind = "e2b.template.build" // with its log
	KindE2BCache          Kind = "e2b.cache"          // a step of a build, or its files, to be used again
	KindE2BEvent          Kind = "e2b.event"          // in the life of a sandbox of E2B
	KindSecret            Kind = "secret"             // of a project, by its name
	KindBlobs             Kind = "blobs"              // where the contents of blobs are
	KindTrace             Kind = "trace"              // of a client's agent
	KindTraceSpan         Kind = "trace.span"
	KindPerson            Kind = "person"       // who has signed in
	KindPersonToken       Kind = "person.token" // of a session, by its hash
	KindPersonLogin       Kind = "person.login" // of a program that signs a person in, by the hash of its code
	KindSCIMUser          Kind = "scim.user"    // whom the provider of identities has provisioned
	KindSCIMName          Kind = "scim.name"    // of a user, by its hash
	KindSCIMGroup         Kind = "scim.group"
	KindSSHKey            Kind = "ssh_key"       // a public key of a project
	KindSSHKeyIndex       Kind = "ssh_key.index" // where a public key is, by its hash
	KindSSHHostKey        Kind = "ssh_host_key"
	KindEndUser           Kind = "end_user"
	KindEndUserSettings   Kind = "end_user.settings" // of a project
	KindEndUserLink       Kind = "end_user.link"     // an object that belongs to an end user
	KindEndUserUsage      Kind = "end_user.usage"    // of a response
	KindSchedule          Kind = "schedule"
	KindScheduleRun       Kind = "schedule.run"
	KindRetention         Kind = "retention"        // what a project sets
	KindRetentionRecord   Kind = "retention.record" // of a batch that ended
	KindHold              Kind = "hold"
	KindApproval          Kind = "approval" // of a call that waits for a person
)

// OfContainer is a container as the parent of an object.
const OfContainer Kind = ""

// Kinds maps each kind to the kinds that an object of it may have as a parent.
// Deleting a parent deletes its children.
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
	KindNeighbour:         nil,
	KindSnapshot:          nil,
	KindVolume:            nil,
	KindImport:            nil,
	KindProject:           nil,
	KindEndpoint:          nil,
	KindDelivery:          {KindEndpoint},
	KindVectorStore:       nil,
	KindVectorFile:        {KindVectorStore},
	KindVectorText:        {KindVectorStore},
	KindVectorBatch:       {KindVectorStore},
	KindVectorJob:         {KindVectorStore},
	KindUpload:            nil,
	KindUploadPart:        {KindUpload},
	KindBatch:             nil,
	KindBatchLine:         {KindBatch},
	KindBatchJob:          nil,
	KindSkill:             nil,
	KindSkillVersion:      {KindSkill},
	KindSkillInline:       nil,
	KindSandbox:           nil,
	KindE2BTemplate:       nil,
	KindE2BBuild:          {KindE2BTemplate},
	KindE2BCache:          nil,
	KindE2BEvent:          nil,
	KindSecret:            nil,
	KindBlobs:             nil,
	KindTrace:             nil,
	KindTraceSpan:         {KindTrace},
	KindEndUser:           nil,
	KindEndUserSettings:   nil,
	KindEndUserLink:       {KindEndUser},
	KindEndUserUsage:      {KindEndUser},
	KindPerson:            nil,
	KindPersonToken:       nil,
	KindPersonLogin:       nil,
	KindSCIMUser:          nil,
	KindSCIMName:          nil,
	KindSCIMGroup:         nil,
	KindSSHKey:            nil,
	KindSSHKeyIndex:       nil,
	KindSSHHostKey:        nil,
	KindSchedule:          nil,
	KindScheduleRun:       {KindSchedule},
	KindRetention:         nil,
	KindRetentionRecord:   nil,
	KindHold:              nil,
	KindApproval:          nil,
}
