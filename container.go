package berth

// A Container is the durable object behind a sandbox: name, limits, files and
// expiry. It outlives the sandbox that runs for it now.
type Container struct {
	ID            ContainerID     `json:"id"`
	Object        string          `json:"object"` // "container"
	CreatedAt     int64           `json:"created_at"`
	Status        ContainerStatus `json:"status"`
	ExpiresAfter  ExpiresAfter    `json:"expires_after"`
	LastActiveAt  int64           `json:"last_active_at"`
	MemoryLimit   string          `json:"memory_limit"` // 1g, 4g, 16g or 64g
	Name          string          `json:"name"`
	NetworkPolicy NetworkPolicy   `json:"network_policy"`
	Berth         ContainerBerth  `json:"berth"`
}

// ContainerBerth is what Berth tells of a container beyond OpenAI's contract.
type ContainerBerth struct {
	Isolation string `json:"isolation"`          // gvisor, microvm, docker, kubernetes or none
	Template  string `json:"template"`           // digest of the template that it started from
	Starting  bool   `json:"starting,omitempty"` // its first use will wait for it
	Reason    string `json:"reason,omitempty"`   // why it is gone: expired, deleted, oom, killed, host or disk

	Paused       bool        `json:"paused,omitempty"`        // until its next use
	FromSnapshot SnapshotID  `json:"from_snapshot,omitempty"` // the one that it started from
	ForkedFrom   ContainerID `json:"forked_from,omitempty"`   // the one that it is a copy of
	OnExpiry     OnExpiry    `json:"on_expiry,omitempty"`     // empty is delete
	LastSnapshot SnapshotID  `json:"last_snapshot,omitempty"` // the one that its expiry left

	Volumes []VolumeMount `json:"volumes,omitempty"` // that it mounts
}

// An OnExpiry says what becomes of the files of a container that expires.
type OnExpiry string

const (
	OnExpiryDelete   OnExpiry = "delete"   // they are gone
	OnExpirySnapshot OnExpiry = "snapshot" // they are kept as a snapshot
)

// An OnLost says what becomes of a chain whose container was to leave a snapshot when it
// expired, and has ended without one, or the snapshot is gone.
type OnLost string

const (
	OnLostFail OnLost = "fail" // its next request is refused with container_expired
	OnLostNew  OnLost = "new"  // it goes on in a new container
)

// ContainerSource is what Berth takes of who asks for a container, beyond OpenAI's
// contract: in "berth" of POST /v1/containers and of a shell's container_auto.
type ContainerSource struct {
	Template   string     `json:"template,omitempty"`    // name or digest of what it starts from
	SnapshotID SnapshotID `json:"snapshot_id,omitempty"` // or the snapshot
	OnExpiry   OnExpiry   `json:"on_expiry,omitempty"`
	OnLost     OnLost     `json:"on_lost,omitempty"` // of a container_auto that continues a chain; empty is fail

	Volumes []VolumeMount `json:"volumes,omitempty"`
}

// A ContainerStatus is the state of a container. An expired container keeps its
// object, with a reason, until it is deleted; its disk is gone.
type ContainerStatus string

const (
	ContainerRunning ContainerStatus = "running"
	ContainerExpired ContainerStatus = "expired"
	ContainerDeleted ContainerStatus = "deleted"
)

// ExpiresAfter says when an idle container goes away.
type ExpiresAfter struct {
	Anchor  string `json:"anchor"` // "last_active_at"
	Minutes int    `json:"minutes"`
}

// A NetworkPolicy says what a container may reach: "disabled" (nothing, the
// default), "allowlist", or "open" (any public name), which is Berth's own.
//
// An allowed domain is a name, "*.name" for all below it, or either with ":port";
// without one its ports are 80 and 443.
type NetworkPolicy struct {
	Type           string         `json:"type"`
	AllowedDomains []string       `json:"allowed_domains,omitempty"`
	DomainSecrets  []DomainSecret `json:"domain_secrets,omitempty"` // of requests; never kept or shown with the policy
}

// A DomainSecret is a value that a container may use toward a domain and never
// sees. The environment variable Name holds a placeholder for it.
type DomainSecret struct {
	Domain string `json:"domain"`
	Name   string `json:"name"`
	Value  string `json:"value"`
}

// A ContainerFile is a file in a container's working directory.
type ContainerFile struct {
	ID          CFileID     `json:"id"`
	Object      string      `json:"object"` // "container.file"
	ContainerID ContainerID `json:"container_id"`
	CreatedAt   int64       `json:"created_at"`
	Bytes       int64       `json:"bytes"`
	Path        string      `json:"path"`   // absolute, under /mnt/data
	Source      string      `json:"source"` // "user" for uploads, "assistant" for what commands made
}

// A ContainerFileEvent tells of a file in a container.
type ContainerFileEvent struct {
	Type ContainerFileEventType `json:"type"`
	File *ContainerFile         `json:"file"` // as it is now, or as it last was
}

// A ContainerFileEventType is what happened to a file.
type ContainerFileEventType string

const (
	ContainerFileCreated ContainerFileEventType = "container.file.created"
	ContainerFileUpdated ContainerFileEventType = "container.file.updated"
	ContainerFileDeleted ContainerFileEventType = "container.file.deleted"
)

// A ContainerFileCitation is the annotation of output text that speaks of a file in
// a container. The indexes count characters of the text; the end is exclusive.
type ContainerFileCitation struct {
	Type        string      `json:"type"` // "container_file_citation"
	ContainerID ContainerID `json:"container_id"`
	FileID      CFileID     `json:"file_id"`
	Filename    string      `json:"filename"`
	StartIndex  int         `json:"start_index"`
	EndIndex    int         `json:"end_index"`
}

// WorkDir is where commands start and files are exchanged, as in the hosted containers.
const WorkDir = "/mnt/data"

// MemoryLimits are the tiers of a container's memory, in bytes.
var MemoryLimits = map[string]int64{"1g": 1 << 30, "4g": 4 << 30, "16g": 16 << 30, "64g": 64 << 30}
