package berth

import "slices"

// A Caller identifies the client of an operation. It is always an explicit argument,
// never a context value.
type Caller struct {
	Project ProjectID
	Key     KeyID // empty when the server runs without keys; user_… of a person who has signed in

	// Person is what others see of the person who makes the request, or who answers for its key. It may be empty.
	Person string

	// Session is the session of a person: requests that run end with it.
	Session string

	// Response, if not empty, is the id that a newly created response gets. Creating
	// it a second time returns the first one. A handler that creates several responses
	// for one request clears it.
	Response ResponseID

	// RequestID identifies the HTTP request in log lines.
	RequestID string

	// Permissions are what the caller may do. Work that continues after its request has none: it was permitted before.
	Permissions Permission

	// Subject is the end user for whom the caller acts; nil for none.
	Subject *Subject

	// Scope, if not nil, narrows what the caller may do.
	Scope *KeyScope
}

// May reports whether the caller has one of the permissions.
func (c Caller) May(p Permission) bool { return c.Permissions&p != 0 }

// Forbidden returns the error for a caller who lacks a permission.
func Forbidden(p Permission) *Error {
	return &Error{Code: CodeForbidden, Wire: "missing_scope",
		Message: "You have insufficient permissions for this operation. Missing permission: " + p.String() + "."}
}

// CheckTool returns an error if the scope of the caller lacks a type of tools.
func (c Caller) CheckTool(kind string) error {
	if c.Scope == nil || len(c.Scope.Tools) == 0 || slices.Contains(c.Scope.Tools, kind) {
		return nil
	}
	return &Error{Code: CodeForbidden, Wire: "missing_scope", Param: "tools",
		Message: "The scope of this API key has no tools of type '" + kind + "'."}
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

	Owner      string // id of the person who answers for the key; empty for none
	Note       string
	LastUsedAt int64 // Unix seconds, a few minutes late; 0 means never
	Role       Role  // what the key may do; empty for all that a key of its project may
	Scope      KeyScope

	// Bound are the permissions of the owner now, which the key cannot exceed, and Person is what others see of the
	// owner. Neither is stored.
	Bound  Permission
	Person string

	// Limits are the key's own limits, which apply besides those of its project.
	Limits KeyLimits
}

// Permissions returns what the key may do. A key never may do more than its owner.
func (k *Key) Permissions() Permission {
	p := AllPermissions(k.Project)
	if k.Role != "" {
		p = k.Role.Permissions(k.Project)
	}
	if k.Owner != "" {
		p &= k.Bound
	}
	if len(k.Scope.Tools) > 0 {
		p &^= MayAttach // commands of the caller need no tool
	}
	return p
}

// Caller returns the caller with the key.
func (k *Key) Caller() Caller {
	c := Caller{Project: k.Project, Key: k.ID, Person: k.Person, Session: k.Session, Permissions: k.Permissions()}
	if !k.Scope.Empty() {
		c.Scope = &k.Scope
	}
	return c
}

// Expired reports whether the key has expired at a time, in Unix seconds.
func (k *Key) Expired(now int64) bool { return k.ExpiresAt != 0 && k.ExpiresAt <= now }

// Lost reports whether the key has an owner who has no access any more.
func (k *Key) Lost() bool { return k.Owner != "" && k.Bound == 0 }
