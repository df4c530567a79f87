package berth

// A Caller identifies the client of an operation. It is always an explicit argument,
// never a context value.
type Caller struct {
	Project ProjectID
	Key     KeyID // empty when the server runs without keys; user_… of a person who has signed in

	// Session is the session of a person: requests that run end with it.
	Session string

	// Response, if not empty, is the id that a newly created response gets. Creating
	// it a second time returns the first one. A handler that creates several responses
	// for one request clears it.
	Response ResponseID

	// RequestID identifies the HTTP request in log lines.
	RequestID string
}

// DefaultProject owns everything on a server that has no keys yet, and the keys
// made without naming a project.
const DefaultProject ProjectID = "proj_default"

// AdminProject is the project of admin keys, which administer the server and belong to no
// project. It owns nothing, and no project can have this id.
const AdminProject ProjectID = "organization"

// Admin reports whether the caller has an admin key.
func (c Caller) Admin() bool { return c.Project == AdminProject }

// KeyPrefix is the prefix of Berth's API keys.
const KeyPrefix = "sk-berth-"

// KeyLimits are the limits of a key. Nil, as -1, means no limit.
type KeyLimits struct {
	CostPerMonth *Amount `json:"cost_per_month,omitempty"` // as Limits.CostPerMonth, of what this key spends
}

// A Key is the stored record of an API key. It holds the SHA-256 of the secret. The
// secret itself is shown once, when the key is created.
type Key struct {
	ID        KeyID
	Project   ProjectID
	Name      string
	Hash      [32]byte
	CreatedAt int64  // Unix seconds
	ExpiresAt int64  // Unix seconds; 0 means never
	Tail      string // the last four characters of the secret
	Session   string // of the person whose token this is; not stored

	// Limits are the key's own limits, which apply besides those of its project.
	Limits KeyLimits
}
