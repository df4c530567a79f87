package berth

// A Volume is a file system that outlives containers, which mount it by its name.
type Volume struct {
	ID        VolumeID `json:"id"`
	Object    string   `json:"object"` // "volume"
	CreatedAt int64    `json:"created_at"`
	ExpiresAt *int64   `json:"expires_at"` // null if it is kept until it is deleted; in use, it stays beyond that
	Name      string   `json:"name"`       // [a-z0-9][a-z0-9_-]{0,62}, unique in its project
	Bytes     int64    `json:"bytes"`      // in use
	MaxBytes  int64    `json:"max_bytes"`  // its size; a little of it is the file system's own
}

// A VolumeMount says where a container finds a volume.
type VolumeMount struct {
	VolumeID VolumeID `json:"volume_id,omitempty"` // the server's
	Name     string   `json:"name"`
	Path     string   `json:"path"` // VolumeDir, and a name as volumes have them; default the volume's own
	ReadOnly bool     `json:"read_only"`
}

// VolumeDir is the directory of a container in which its volumes are.
const VolumeDir = "/mnt/volumes"
