package berth

// A Snapshot is the state of a container at one moment: its changes to the template's
// file system, and the working directory and environment of its shell. With memory,
// it includes the running processes. Any number of containers can start from it. It
// outlives its container.
type Snapshot struct {
	ID          SnapshotID    `json:"id"`
	Object      string        `json:"object"` // "container.snapshot"
	CreatedAt   int64         `json:"created_at"`
	ExpiresAt   *int64        `json:"expires_at"`         // null means that it does not expire
	ContainerID ContainerID   `json:"container_id"`       // the source
	EndUser     EndUserID     `json:"end_user,omitempty"` // of the source
	Name        string        `json:"name"`
	Cause       SnapshotCause `json:"cause"`
	Template    string        `json:"template"`               // digest of the template below it
	Memory      bool          `json:"memory,omitempty"`       // includes the running processes
	MemoryLimit string        `json:"memory_limit,omitempty"` // of containers that start from its memory
	Digest      string        `json:"digest"`                 // sha256:… of its content
	Bytes       int64         `json:"bytes"`                  // total size of its files
	StoredBytes int64         `json:"stored_bytes"`           // compressed size on disk
}

// A SnapshotCause is the reason for which a snapshot was created.
type SnapshotCause string

const (
	SnapshotRequested SnapshotCause = "requested" // a client requested it
	SnapshotExpired   SnapshotCause = "expired"   // its container expired; the chain continues from it
	SnapshotImported  SnapshotCause = "imported"  // it was imported with a bundle from another server
)
