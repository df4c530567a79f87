package berth

// A Caller is who asks. It is an explicit argument of whatever acts for someone,
// never a value hidden in a context.
type Caller struct {
	Project ProjectID
	Key     KeyID // empty when the server runs without keys

	// Response, if not empty, is the id of the response that they ask for. Asking
	// for it again is asking for the same one. A door that makes several responses
	// of one request clears it.
	Response ResponseID

	// RequestID names the request with which they ask, in every line that the log
	// has of it.
	RequestID string
}

// DefaultProject owns everything on a server that has no keys yet, and the keys
// made without naming a project.
const DefaultProject ProjectID = "proj_default"

// KeyPrefix begins the API keys that Berth makes.
const KeyPrefix = "sk-berth-"

// A Key is an API key as the store keeps it. The secret itself is shown once,
// when the key is created; only its SHA-256 is kept.
type Key struct {
	ID        KeyID
	Project   ProjectID
	Name      string
	Hash      [32]byte
	CreatedAt int64  // Unix seconds
	ExpiresAt int64  // Unix seconds; 0 is never
	Tail      string // the last four characters, to recognise a key by
}
