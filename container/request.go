package container

import (
	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/skills"
)

// A CreateRequest describes a container. The parameters in errors about it are
// those of OpenAI's request.
type CreateRequest struct {
	Name string
	// Unnamed: the client has not chosen Name, so the container has no name in its group without one of its own.
	Unnamed bool
	// refuse the request if a running container of the project has Name as its unique name
	UniqueName    bool
	MemoryLimit   string                // 1g, 4g, 16g or 64g; default 1g
	ExpiresAfter  *berth.ExpiresAfter   // default ExpiryOptions.IdleMinutes
	NetworkPolicy *berth.NetworkPolicy  // default disabled
	Transforms    []egress.Transform    // of requests to hosts; they grant no access
	FileIDs       []berth.FileID        // copied into berth.WorkDir before the first use
	Skills        []berth.SkillParam    // copied below berth.SkillsDir before the first use
	Env           []string              // KEY=value, of all commands; sealed in the store
	Source        berth.ContainerSource // default: the server's template and expiry

	resolved []*skills.Install // of Skills, if they are known already
}

// A SnapshotRequest describes a snapshot or a fork.
type SnapshotRequest struct {
	Name   string `json:"name,omitempty"`   // need not be unique
	Memory bool   `json:"memory,omitempty"` // with running processes; the container must not be in use
}

// MaxForks is how many forks one request may ask for.
const MaxForks = 100

// A ForkRequest is the body of a request for a fork.
type ForkRequest struct {
	SnapshotRequest
	UniqueName bool `json:"unique_name,omitempty"` // see CreateRequest.UniqueName
}
