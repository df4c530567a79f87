package berth

// A ServerStatus is the state of a server at one moment. Counters start at zero with each process.
type ServerStatus struct {
	Object     string         `json:"object"`     // "organization.status"
	At         int64          `json:"at"`         // Unix seconds
	StartedAt  int64          `json:"started_at"` // of the process
	Version    string         `json:"version"`
	Problems   []string       `json:"problems"` // what /readyz reports; empty if the server is ready
	Responses  ResponseCounts `json:"responses"`
	Containers ContainerCount `json:"containers"`
	Pools      []PoolStatus   `json:"pools"`
	Upstreams  []Upstream     `json:"upstreams"`
	Disk       []DiskStatus   `json:"disk"`
	LastBackup *BackupStatus  `json:"last_backup,omitempty"` // absent if none was made since this version
}

// A BackupStatus is the last complete backup that "berth backup" has made of a state directory.
type BackupStatus struct {
	At    int64 `json:"at"` // Unix seconds of its start
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
}

// ResponseCounts count responses of all projects.
type ResponseCounts struct {
	Running    int   `json:"running"`
	Completed  int64 `json:"completed"`
	Incomplete int64 `json:"incomplete"`
	Failed     int64 `json:"failed"`
	Cancelled  int64 `json:"cancelled"`
}

// ContainerCount counts the running containers of all projects.
type ContainerCount struct {
	Running int `json:"running"`
	Asleep  int `json:"asleep"` // of the running ones
}

// A PoolStatus is the state of a pool of sandboxes.
type PoolStatus struct {
	Template    string `json:"template"` // empty is the default template
	MemoryLimit string `json:"memory_limit"`
	Size        int    `json:"size"`   // configured
	Target      int    `json:"target"` // what it is to hold now: more than size after bursts
	Ready       int    `json:"ready"`
	Hits        int64  `json:"hits"`   // containers that got one of its sandboxes
	Misses      int64  `json:"misses"` // containers started cold because it was empty
}

// A DiskStatus is the free space of the volume of a part of the state.
type DiskStatus struct {
	Area      string `json:"area"` // database, files, sandboxes, …
	Bytes     int64  `json:"bytes"`
	FreeBytes int64  `json:"free_bytes"`
	Low       bool   `json:"low"` // writes are refused
}
