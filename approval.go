package berth

import (
	"encoding/json"
	"fmt"
	"strings"
)

// An ApprovalPolicy says which commands wait until the client approves of them, in
// the form of an MCP tool's require_approval: "always", "never", or lists of
// patterns in which * is any text. A command that Always names waits; else, if there
// are Never patterns, each that is none of them.
//
// A command is one line of many to a shell. Never patterns hold only for plain
// commands, without characters by which a shell makes one more of it or another.
type ApprovalPolicy struct {
	All    bool     // "always"
	Always []string // patterns
	Never  []string
}

// shellCharacters make more than one command of a text, or other words of its words.
const shellCharacters = ";&|<>`$(){}[]\\\n\r*?~#!'\"="

// Requires reports whether a command waits for approval.
func (p *ApprovalPolicy) Requires(command string) bool {
	switch {
	case p == nil:
		return false
	case p.All || matches(p.Always, command):
		return true
	case len(p.Never) == 0:
		return false
	}
	return strings.ContainsAny(command, shellCharacters) || !matches(p.Never, command)
}

func matches(patterns []string, s string) bool {
	for _, p := range patterns {
		if matchesPattern(p, strings.TrimSpace(s)) {
			return true
		}
	}
	return false
}

// matchesPattern reports whether s is the pattern, in which * is any text.
func matchesPattern(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}

// An ApprovalRequest asks the client to approve of a call, in the form in which the
// hosted service asks about calls of MCP servers. An ApprovalResponse in the input of
// a response that continues this one answers it.
type ApprovalRequest struct {
	ID          string   `json:"id"`
	Type        ItemType `json:"type"`
	Arguments   string   `json:"arguments"` // JSON, as the model wrote it
	Name        string   `json:"name"`      // of the tool
	ServerLabel string   `json:"server_label"`
}

// An ApprovalResponse answers an ApprovalRequest.
type ApprovalResponse struct {
	ID                string   `json:"id,omitempty"`
	Type              ItemType `json:"type"`
	ApprovalRequestID string   `json:"approval_request_id"`
	Approve           bool     `json:"approve"`
	Reason            string   `json:"reason,omitempty"` // told to the model
}

type commandPatterns struct {
	Commands []string `json:"commands"`
}

type approvalFilters struct {
	Always *commandPatterns `json:"always,omitempty"`
	Never  *commandPatterns `json:"never,omitempty"`
}

// MarshalJSON writes the form in which the policy can be asked for.
func (p ApprovalPolicy) MarshalJSON() ([]byte, error) {
	if p.All {
		return json.Marshal("always")
	}
	if p.Always == nil && p.Never == nil {
		return json.Marshal("never")
	}
	var f approvalFilters
	if p.Always != nil {
		f.Always = &commandPatterns{p.Always}
	}
	if p.Never != nil {
		f.Never = &commandPatterns{p.Never}
	}
	return json.Marshal(f)
}

// UnmarshalJSON reads "always", "never", or the patterns of each.
func (p *ApprovalPolicy) UnmarshalJSON(b []byte) error {
	*p = ApprovalPolicy{}
	if len(b) > 0 && b[0] == '"' {
		var word string
		if err := json.Unmarshal(b, &word); err != nil {
			return err
		}
		if word != "always" && word != "never" {
			return fmt.Errorf("%q is neither always nor never", word)
		}
		p.All = word == "always"
		return nil
	}
	var f approvalFilters
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	if f.Always != nil {
		p.Always = f.Always.Commands
	}
	if f.Never != nil {
		p.Never = f.Never.Commands
	}
	return nil
}
