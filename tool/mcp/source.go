package mcp

import (
	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/tool"
)

// Limits of a server's list of tools.
const (
	maxTools       = 512
	maxPages       = 64
	maxName        = 256       // of a tool, in bytes
	maxDescription = 8 << 10   // in bytes
	maxSchema      = 256 << 10 // in bytes
	maxSchemas     = 2 << 20   // with descriptions, of all tools together, in bytes
	maxList        = 4 << 20   // of all pages together, as the server sends them, in bytes
)

// A source is a server of one response. It connects when it is first used.
type source struct {
	opts    Options
	caller  berth.Caller
	tool    berth.MCPTool
	session *session // nil before the first use, and after the connection broke
}

// newSource returns the source for an entry of "tools".
func newSource(opts Options, caller berth.Caller, t berth.Tool) (*source, error) {
	decoded, err := tool.Decode[berth.MCPTool](t, "MCP tool")
	if err != nil {
		return nil, err
	}
	s := &source{opts: opts, caller: caller, tool: decoded}
	if s.isCommand() {
		return s, nil
	}
	target, err := targetOf(decoded.ServerURL)
	if err != nil {
		return nil, err
	}
	if opts.Gate == nil || !egress.Decide(opts.Gate.Policy, target).Allow {
		return nil, berth.Invalid("server_url",
			"This server may not reach '%s'. Its operator bounds the MCP servers that it may reach.", target)
	}
	return s, nil
}

func (s *source) isCommand() bool { return s.tool.Berth != nil && len(s.tool.Berth.Command) > 0 }

// Label implements tool.Source.
func (s *source) Label() string { return s.tool.ServerLabel }
