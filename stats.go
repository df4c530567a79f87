package berth

// ContainerStats is what a container uses at one moment. Figures that its driver
// cannot read are zero; limits it does not keep are told all the same.
type ContainerStats struct {
	Object        string      `json:"object"` // "container.stats"
	ContainerID   ContainerID `json:"container_id"`
	At            int64       `json:"at"`             // Unix seconds
	UptimeSeconds int64       `json:"uptime_seconds"` // since the container was created
	CPUSeconds    float64     `json:"cpu_seconds"`    // of processors, since its sandbox was started
	Memory        MemoryStats `json:"memory"`
	Disk          DiskStats   `json:"disk"`
	PIDs          PIDStats    `json:"pids"`
	Egress        EgressStats `json:"egress"`
}

// MemoryStats are in bytes, with what the driver itself takes.
type MemoryStats struct {
	Bytes      int64 `json:"bytes"`
	PeakBytes  int64 `json:"peak_bytes"` // with page cache
	LimitBytes int64 `json:"limit_bytes"`
}

// DiskStats are of what was written above the template, in bytes.
type DiskStats struct {
	Bytes      int64 `json:"bytes"`
	LimitBytes int64 `json:"limit_bytes"`
}

// PIDStats count processes and threads on the host.
type PIDStats struct {
	Count int `json:"count"`
	Limit int `json:"limit"`
}

// EgressStats are counted since this life of the server began.
type EgressStats struct {
	BytesSent     int64 `json:"bytes_sent"` // toward the hosts
	BytesReceived int64 `json:"bytes_received"`
	Allowed       int64 `json:"allowed"` // connections that reached their host
	Refused       int64 `json:"refused"` // connections and names
	Open          int64 `json:"open"`    // connections now
}
