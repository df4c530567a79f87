package messages

import (
	"fmt"
	"maps"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// toolset returns the tool of an MCP server that an mcp_toolset names.
func (m *messageRequest) toolset(p *toolParam, at string) (any, error) {
	i := slices.IndexFunc(m.MCPServers, func(s serverMCP) bool { return s.Name == p.MCPServerName })
	if i < 0 {
		return nil, berth.Invalid(at+".mcp_server_name", "MCP server '%s' not found in `mcp_servers`",
			rule.Clip(p.MCPServerName))
	}
	offered := m.MCPServers[i].tool()
	enabled := p.DefaultConfig.Enabled == nil || *p.DefaultConfig.Enabled
	var names []string
	for _, name := range slices.Sorted(maps.Keys(p.Configs)) {
		if of := p.Configs[name].Enabled; of != nil && *of && !enabled {
			names = append(names, name)
		} else if of != nil && !*of && enabled {
			return nil, berth.Invalid(at+".configs."+name+".enabled",
				"This server cannot leave out single tools of an MCP server. Set 'default_config.enabled' to false and enable those that you want.")
		}
	}
	if !enabled {
		offered["allowed_tools"] = map[string]any{"tool_names": append([]string{}, names...)}
	}
	return offered, nil
}

// tool returns a server as a tool. Its calls need no approval, for which a message has no form.
func (s *serverMCP) tool() map[string]any {
	offered := map[string]any{"type": berth.ToolMCP, "server_label": s.Name, "server_url": s.URL,
		"require_approval": "never"}
	if s.Authorization != "" {
		offered["authorization"] = s.Authorization
	}
	return offered
}

// A serverOffer is an MCP server that becomes a tool.
type serverOffer struct {
	at   string
	tool any
}

// unnamedServers returns the servers that no toolset names: the former form, in which servers have a
// tool_configuration.
func (m *messageRequest) unnamedServers() []serverOffer {
	var all []serverOffer
	for i := range m.MCPServers {
		s := &m.MCPServers[i]
		if slices.ContainsFunc(m.Tools, func(p toolParam) bool {
			return p.family() == familyToolset && p.MCPServerName == s.Name
		}) {
			continue
		}
		offered := s.tool()
		if c := s.Configuration; c != nil {
			if c.Enabled != nil && !*c.Enabled {
				continue
			}
			if c.AllowedTools != nil {
				offered["allowed_tools"] = map[string]any{"tool_names": c.AllowedTools}
			}
		}
		all = append(all, serverOffer{fmt.Sprintf("mcp_servers[%d]", i), offered})
	}
	return all
}
