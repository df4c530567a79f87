package berth

// A Caller is who asks. It is an explicit argument of whatever acts for someone,
// never a value hidden in a context.
type Caller struct {
	Project ProjectID
	Key     KeyID // empty when the server runs without keys
}

// DefaultProject owns everything on a server that has no keys yet, and the keys
// made without naming a project.
const DefaultProject ProjectID = "proj_default"

// A Key is an API key as the store keeps it. The secret itself is shown once,
// when the key is created; only its SHA-256 is kept.
type Key struct {
	ID        KeyID
	Project   ProjectID
	Name      string
	Hash      [32]byte
	CreatedAt int64  // Unix seconds
	Tail      string // the last four characters, to recognise a key by
}
