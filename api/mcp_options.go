package api

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/command"
	"github.com/berth-run/berth/container/session"
)

// MCPOptions are the parts of the MCP server.
type MCPOptions struct {
	Sessions *session.Service // nil serves no MCP
	Commands *command.Service

	// Remove deletes a container, also one of another server. Default: Containers.Delete.
	Remove func(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error
}
