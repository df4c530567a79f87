package berth

import (
	"encoding/json"
	"fmt"
	"strings"
)

// RequestBerth is what Berth takes of who asks for a response, beyond OpenAI's
// contract: the field "berth" of POST /v1/responses.
type RequestBerth struct {
	Checks          *Checks         `json:"checks,omitempty"`
	Budget          *Budget         `json:"budget,omitempty"`
	RequireApproval *ApprovalPolicy `json:"require_approval,omitempty"` // of calls of the shell that the server runs
}

// Checks are commands that must succeed in the container before an answer counts.
// The model is shown what failed and answers again.
type Checks struct {
	Commands  []string `json:"commands"`
	TimeoutMS *int     `json:"timeout_ms,omitempty"` // of each; default the server's
	MaxRounds int      `json:"max_rounds,omitempty"` // answers that are checked before the response ends as incomplete; default 3
}

// DefaultCheckRounds is the max_rounds of Checks that have none.
const DefaultCheckRounds = 3

// A Budget bounds what a response may take before it ends as incomplete. Zero is the
// server's bound, which no request can raise.
type Budget struct {
	Turns   int    `json:"max_turns,omitempty"`
	Tokens  int    `json:"max_total_tokens,omitempty"` // of all turns, in and out
	Seconds int    `json:"max_seconds,omitempty"`      // since it was created
	Cost    Amount `json:"max_cost,omitempty"`         // in the currency of the prices

	// Failures is how often in a row the same call may fail, Repeats how many calls in
	// a row may bring nothing that was not seen before. Negative is no bound.
	Failures int `json:"max_repeated_failures,omitempty"`
	Repeats  int `json:"max_repeated_calls,omitempty"`
}

// Within returns the budget with what it leaves open taken from the server's, and no
// more than that where the server has a bound.
func (b Budget) Within(server Budget) Budget {
	b.Turns = tighter(b.Turns, server.Turns)
	b.Tokens = tighter(b.Tokens, server.Tokens)
	b.Seconds = tighter(b.Seconds, server.Seconds)
	b.Cost = tighter(b.Cost, server.Cost)
	if b.Failures == 0 {
		b.Failures = server.Failures
	}
	if b.Repeats == 0 {
		b.Repeats = server.Repeats
	}
	return b
}

func tighter[N int | Amount](own, server N) N {
	if own <= 0 || server > 0 && server < own {
		return server
	}
	return own
}

// Why a response of Berth's ended as incomplete, beyond the reasons that OpenAI has.
const (
	ReasonTurns        = "max_turns"
	ReasonTokens       = "max_total_tokens"
	ReasonSeconds      = "max_seconds"
	ReasonCost         = "max_cost"
	ReasonFailures     = "max_repeated_failures"
	ReasonRepeats      = "max_repeated_calls"
	ReasonChecksFailed = "checks_failed"
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
