package api

import (
	"context"
	"net/http"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/mcp"
	"github.com/berth-run/berth/api/preview"
	"github.com/berth-run/berth/container/command"
	"github.com/berth-run/berth/container/session"
)

// MCPOptions are the parts of the MCP server.
type MCPOptions struct {
	Sessions *session.Service // nil serves no MCP
	Commands *command.Service
	Patience time.Duration // for which a call waits for the answer of a person; default 50 s

	// Remove deletes a container, also one of another server. Default: Containers.Delete.
	Remove func(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error
}

// newMCP returns the door of MCP, or nil if it is not served.
func newMCP(o Options, ports *preview.Door) *mcp.Door {
	if o.MCP.Sessions == nil {
		return nil
	}
	return mcp.New(mcp.Options{Containers: o.Containers, Sessions: o.MCP.Sessions, Commands: o.MCP.Commands,
		Placement: o.Exchange.Placement, Origins: o.Exchange.Origins, Version: o.Build.Version, Log: o.Exchange.Log,
		Remove: o.MCP.Remove, Approvals: o.Approvals, Patience: o.MCP.Patience,
		Link: func(r *http.Request, c berth.Caller, id berth.ContainerID, port int, life time.Duration) (mcp.PortLink,
			error) {
			l, err := ports.NewLink(r, c, id, port, life)
			if err != nil {
				return mcp.PortLink{}, err
			}
			return mcp.PortLink{URL: l.URL, HostURL: l.HostURL, ExpiresAt: l.ExpiresAt}, nil
		}})
}
