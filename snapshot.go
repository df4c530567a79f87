package berth

// A Snapshot is what was in a container's file system at one moment: all that had
// changed above its template, and the working directory and environment of its
// shell. A container can start from it, any number of times. It outlives the
// container that it was made of. With memory, it is all that the container was, with
// its running processes.
type Snapshot struct {
	ID          SnapshotID    `json:"id"`
	Object      string        `json:"object"` // "container.snapshot"
	CreatedAt   int64         `json:"created_at"`
	ExpiresAt   *int64        `json:"expires_at"`   // null if it is kept until it is deleted
	ContainerID ContainerID   `json:"container_id"` // what it was made of
	Name        string        `json:"name"`
	Cause       SnapshotCause `json:"cause"`
	Template    string        `json:"template"`               // digest of what it lies above
	Memory      bool          `json:"memory,omitempty"`       // what ran is in it, and goes on
	MemoryLimit string        `json:"memory_limit,omitempty"` // that what starts from its memory has
	Digest      string        `json:"digest"`                 // sha256:… of its content
	Bytes       int64         `json:"bytes"`                  // in its files
	StoredBytes int64         `json:"stored_bytes"`           // that it takes, compressed
}

// A SnapshotCause says why a snapshot was made.
type SnapshotCause string

const (
	SnapshotRequested SnapshotCause = "requested" // somebody asked for it
	SnapshotExpired   SnapshotCause = "expired"   // its container expired, and is continued from it
	SnapshotImported  SnapshotCause = "imported"  // it came in a bundle from another server
	SnapshotForked    SnapshotCause = "forked"    // its container is being forked; it goes when that is done
)
