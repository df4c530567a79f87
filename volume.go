package berth

// A Volume is a file system that outlives containers. Containers mount it by name.
type Volume struct {
	ID        VolumeID `json:"id"`
	Object    string   `json:"object"` // "volume"
	CreatedAt int64    `json:"created_at"`
	ExpiresAt *int64   `json:"expires_at"` // null means never; a mounted volume does not expire
	Name      string   `json:"name"`       // [a-z0-9][a-z0-9_-]{0,62}, unique in its project
	Bytes     int64    `json:"bytes"`      // in use
	MaxBytes  int64    `json:"max_bytes"`  // its size, including the file system's own data
}

// A VolumeMount is a volume's mount point in a container.
type VolumeMount struct {
	VolumeID VolumeID `json:"volume_id,omitempty"` // set by the server
	Name     string   `json:"name"`                // of a volume of the project
	Path     string   `json:"path"`                // absolute; by default /mnt/volumes/NAME
	ReadOnly bool     `json:"read_only"`           // commands cannot change it
}

// VolumeDir is the directory of a container in which its volumes are mounted. At a VolumeMount.Path elsewhere
// is a symbolic link to one.
const VolumeDir = "/mnt/volumes"
