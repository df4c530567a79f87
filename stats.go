package berth

// ContainerStats is the resource usage of a container at one moment. Figures that its
// driver cannot read are zero. Limits are set even if the driver cannot enforce them.
type ContainerStats struct {
	Object        string      `json:"object"` // "container.stats"
	ContainerID   ContainerID `json:"container_id"`
	At            int64       `json:"at"`             // Unix seconds
	UptimeSeconds int64       `json:"uptime_seconds"` // since the container was created
	CPUSeconds    float64     `json:"cpu_seconds"`    // CPU time since its sandbox started
	Memory        MemoryStats `json:"memory"`
	Disk          DiskStats   `json:"disk"`
	PIDs          PIDStats    `json:"pids"`
	Egress        EgressStats `json:"egress"`
}

// MemoryStats are in bytes and include the memory of the driver itself.
type MemoryStats struct {
	Bytes      int64 `json:"bytes"`
	PeakBytes  int64 `json:"peak_bytes"` // including the page cache
	LimitBytes int64 `json:"limit_bytes"`
}

// DiskStats are the bytes written on top of the template.
type DiskStats struct {
	Bytes      int64 `json:"bytes"`
	LimitBytes int64 `json:"limit_bytes"`
}

// PIDStats count processes and threads on the host.
type PIDStats struct {
	Count int `json:"count"`
	Limit int `json:"limit"`
}

// EgressStats count from the start of the server process.
type EgressStats struct {
	BytesSent     int64 `json:"bytes_sent"` // by the container
	BytesReceived int64 `json:"bytes_received"`
	Allowed       int64 `json:"allowed"` // connections that reached their host
	Refused       int64 `json:"refused"` // connections and name look-ups
	Open          int64 `json:"open"`    // connections now
}

// StatsSample is the resource usage of a container at a moment of its history. CPU time and transferred bytes are
// sums, from the same starts as those of ContainerStats.
type StatsSample struct {
	At            int64   `json:"at"` // Unix seconds
	CPUSeconds    float64 `json:"cpu_seconds"`
	MemoryBytes   int64   `json:"memory_bytes"`
	DiskBytes     int64   `json:"disk_bytes"`
	BytesSent     int64   `json:"bytes_sent"`
	BytesReceived int64   `json:"bytes_received"`
}
