package tool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/berth-run/berth"
)

// A Source is an entry of "tools" for the tools of a server, such as an MCP
// server. Only the server knows them. It is for one response and one goroutine.
type Source interface {
	// Label returns the name by which requests refer to the source.
	Label() string
	// Known returns the tools that an item of the context lists, or false if none does.
	Known(items []berth.Item) ([]Listed, bool)
	// Load gets the tools from the server, and adds an item of type Kind.Listing about it.
	// An error fails the response. The Emitter has no call.
	Load(ctx context.Context, out Emitter) ([]Listed, error)
	// Close releases what the source and the calls of its tools hold, when the response has
	// ended.
	Close()
}

// A Listed tool is a tool of a Source with its name there.
type Listed struct {
	Name string
	Tool Tool
}

// An Approver is a Tool that decides whether its calls wait for the client's approval.
type Approver interface {
	// Approval returns the fields that name the tool in a request for approval, or false if
	// its calls need none.
	Approval() (serverLabel, name string, needed bool)
}

// A Markable call holds in its item why the engine made it. The items of other calls get the
// mark as their field "berth".
type Markable interface{ Mark(berth.CallBerth) }

// ApprovalLabel is the server_label of a request for approval that is not about the tool of
// a Source.
const ApprovalLabel = "berth"

// ApprovalFunction returns the name of the function whose call waits for an approval.
func ApprovalFunction(r berth.ApprovalRequest) string {
	if r.ServerLabel == ApprovalLabel {
		return r.Name
	}
	return ServerFunction(r.ServerLabel, r.Name)
}

// maxFunctionName is the length of a function's name that all upstreams accept.
const maxFunctionName = 64

// ServerFunction returns the name of the function under which a model sees the tool of a
// Source: LABEL__TOOL. A name that is too long, or has characters that no upstream accepts,
// is shortened and ends in a hash, so that two tools never share one.
func ServerFunction(label, name string) string {
	whole := FunctionName(label, name)
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, whole)
	if clean == whole && len(whole) <= maxFunctionName {
		return whole
	}
	sum := sha256.Sum256([]byte(whole))
	end := "_" + hex.EncodeToString(sum[:4])
	return clean[:min(len(clean), maxFunctionName-len(end))] + end
}
