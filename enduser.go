package berth

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// An EndUserID names an end user of a project: euser_…, a hash of what the client calls the user. It has no personal
// data, so it may be in logs and in the audit record.
type EndUserID string

// PrefixEndUser is the prefix of the ids of end users.
const PrefixEndUser = "euser_"

// An EndUser is a person, or a chat of a person, for whom a client of a project sends requests. Its names are the
// client's and may be any text.
type EndUser struct {
	ID        EndUserID     `json:"id"`
	Object    string        `json:"object"` // "end_user"
	CreatedAt int64         `json:"created_at"`
	User      string        `json:"user"` // as the client names the user; empty if it names chats only
	Chat      string        `json:"chat"` // of a user without a name; else empty
	Limits    EndUserLimits `json:"limits"`
	Forgotten bool          `json:"forgotten"` // the data is being deleted; requests are refused
}

// EndUserLimits are the limits of an end user. Nil means the default, and -1 no limit.
type EndUserLimits struct {
	Containers   *int64  `json:"containers,omitempty"`     // running at a time
	CostPerMonth *Amount `json:"cost_per_month,omitempty"` // as Limits.CostPerMonth, of what is spent for the user
}

// Or returns the limits, and those of others where they are nil.
func (l EndUserLimits) Or(others EndUserLimits) EndUserLimits {
	if l.Containers == nil {
		l.Containers = others.Containers
	}
	if l.CostPerMonth == nil {
		l.CostPerMonth = others.CostPerMonth
	}
	return l
}

// EndUserSettings are how a project treats end users. Nil means as the configuration says.
type EndUserSettings struct {
	Object  string        `json:"object"`  // "end_user.settings"
	Enabled *bool         `json:"enabled"` // whether requests may name end users
	Limits  EndUserLimits `json:"limits"`  // of users without limits of their own

	// Computer selects the container of a request that names an end user and no container.
	Computer EndUserComputer `json:"computer"`
}

// An EndUserComputer selects which container a request gets that names an end user and no container.
type EndUserComputer string

const (
	ComputerNone EndUserComputer = "none" // a new one, as for all requests
	ComputerChat EndUserComputer = "chat" // that of the chat, if the request names one
	ComputerUser EndUserComputer = "user" // that of the user, in all chats
)

// An EndUserObject is something that belongs to an end user and is deleted with it.
type EndUserObject struct {
	ID        string `json:"id"`
	Object    string `json:"object"` // "end_user.object"
	Type      string `json:"type"`   // the word of EndUserDeletion.Objects, such as "container"
	CreatedAt int64  `json:"created_at"`
	Link      string `json:"-"` // its place in the list
}

// EndUserUsage is what was used for an end user in a calendar month (UTC).
type EndUserUsage struct {
	Object       string    `json:"object"` // "end_user.usage"
	EndUser      EndUserID `json:"end_user"`
	Month        string    `json:"month"`     // 2026-11
	Responses    int64     `json:"responses"` // that ended
	InputTokens  int64     `json:"input_tokens"`
	OutputTokens int64     `json:"output_tokens"`
	Cost         Amount    `json:"cost"`       // in the currency of the configuration
	Containers   int64     `json:"containers"` // that were created
}

// EndUserDeletion is the answer to a request to forget an end user.
type EndUserDeletion struct {
	ID         EndUserID        `json:"id"`
	Object     string           `json:"object"` // "end_user.deleted"
	Deleted    bool             `json:"deleted"`
	Objects    map[string]int64 `json:"objects"`    // how many were deleted, by their kind
	Checkpoint string           `json:"checkpoint"` // signed, of the audit record, which has the deletion
}

// A Subject is the end user for whom a caller acts.
type Subject struct {
	EndUser EndUserID
	User    string // as the client names the user
	Chat    string // as the client names the chat

	// Computer is the unique name of the container that the user or the chat has; empty for none.
	Computer    string
	IdleMinutes int // after which that container expires; 0: the server's default

	Limits EndUserLimits // nil and negative: no limit
}

// NewEndUserID returns the id of an end user of a project. A user without a name has the name of a chat.
func NewEndUserID(p ProjectID, user, chat string) EndUserID {
	if user != "" {
		return EndUserID(PrefixEndUser + hashTexts("user", string(p), user))
	}
	return EndUserID(PrefixEndUser + hashTexts("chat", string(p), chat))
}

// ComputerName returns the name of the container of a chat of a user, or of all chats if chat is empty.
func ComputerName(user, chat string) string { return "computer-" + hashTexts("computer", user, chat) }

// hashTexts returns a hash of texts. No two lists of texts have the same: each is preceded by its length.
func hashTexts(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		_ = binary.Write(h, binary.BigEndian, uint64(len(t)))
		h.Write([]byte(t))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
