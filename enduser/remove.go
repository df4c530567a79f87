package enduser

import (
	"context"

	"github.com/berth-run/berth"
)

// Remove has what deletes each kind of object that a user may have.
type Remove struct {
	Containers    func(context.Context, berth.ProjectID, berth.ContainerID) error
	Snapshots     func(context.Context, berth.ProjectID, berth.SnapshotID) error
	Files         func(context.Context, berth.ProjectID, berth.FileID) error
	Responses     func(context.Context, berth.Caller, berth.ResponseID) error
	Conversations func(context.Context, berth.Caller, berth.ConversationID) error
	Completions   func(context.Context, berth.ProjectID, string) error
	Traces        func(context.Context, berth.ProjectID, string) error
}

// Removers returns the functions by the prefixes of links.
func (r Remove) Removers() map[string]Remover {
	return map[string]Remover{
		berth.PrefixContainer:    inProject(r.Containers),
		berth.PrefixSnapshot:     inProject(r.Snapshots),
		berth.PrefixFile:         inProject(r.Files),
		berth.PrefixResponse:     byCaller(r.Responses),
		berth.PrefixConversation: byCaller(r.Conversations),
		PrefixCompletion:         inProject(r.Completions),
		PrefixTrace:              inProject(r.Traces),
	}
}

func inProject[ID ~string](remove func(context.Context, berth.ProjectID, ID) error) Remover {
	return func(ctx context.Context, c berth.Caller, id string) error { return remove(ctx, c.Project, ID(id)) }
}

func byCaller[ID ~string](remove func(context.Context, berth.Caller, ID) error) Remover {
	return func(ctx context.Context, c berth.Caller, id string) error { return remove(ctx, c, ID(id)) }
}
