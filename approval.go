package berth

import (
	"encoding/json"
	"fmt"
	"strings"
)

// An ApprovalPolicy selects the commands that wait for the client's approval. Its
// JSON is that of an MCP tool's require_approval: "always", "never", or lists of
// patterns in which * matches any text. A command waits if it matches an Always
// pattern, or if there are Never patterns and it matches none of them.
//
// Never patterns apply only to plain commands. A command with shell metacharacters
// waits, because the shell could run something else than its text suggests.
type ApprovalPolicy struct {
	All    bool     // "always"
	Always []string // patterns
	Never  []string
}

// shellCharacters are the characters with which a shell splits or expands a command.
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

// matchesPattern reports whether s matches the pattern, in which * matches any text.
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

// An ApprovalRequest asks the client to approve a call, in the form that OpenAI uses
// for calls of MCP servers. The client answers with an ApprovalResponse in the input
// of the next response of the chain.
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
	Reason            string   `json:"reason,omitempty"` // shown to the model
}

// An ApprovalAnswer states who answered an approval request.
type ApprovalAnswer struct {
	ApprovalRequestID string `json:"approval_request_id"`
	Approve           bool   `json:"approve"`
	KeyID             KeyID  `json:"key_id,omitempty"` // of the request; user_… of a person who has signed in
	Person            string `json:"person,omitempty"` // who signed in, or answers for the key
}

type commandPatterns struct {
	Commands []string `json:"commands"`
}

type approvalFilters struct {
	Always *commandPatterns `json:"always,omitempty"`
	Never  *commandPatterns `json:"never,omitempty"`
}

// MarshalJSON writes the policy as a request states it.
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
