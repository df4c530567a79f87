package config

import (
	"log/slog"
	"time"

	"github.com/berth-run/berth"
)

// Log configures the log.
type Log struct {
	Level  string `yaml:"level"`  // debug, info (the default), warn or error
	Format string `yaml:"format"` // text (the default) or json
}

// Threshold returns the level below which messages are dropped.
func (c Log) Threshold() slog.Level {
	var level slog.Level // info
	_ = level.UnmarshalText([]byte(c.Level))
	return level
}

// Listener is the address of a listener.
type Listener struct {
	Listen string `yaml:"listen"` // such as 127.0.0.1:9464. Default: none
}

// Responses bounds the memory of responses.
type Responses struct {
	// output of the model in one response, which then ends as incomplete. Default: 16m
	MaxOutput Bytes `yaml:"max_output"`
	History   Bytes `yaml:"history"` // cache of chains and conversations. Default: 64m
}

// Docker configures the driver docker.
type Docker struct {
	// Host is the engine's address: unix:///var/run/docker.sock, tcp://host:2376.
	// Default: that of the docker command, from its environment or context.
	Host string `yaml:"host"`

	// Runtime is a runtime configured in the engine, such as runsc. Default: the engine's
	// default.
	Runtime string `yaml:"runtime"`
}

// MicroVM configures the driver microvm.
type MicroVM struct {
	// QEMU is the path of the program. Default: qemu-system-x86_64 in PATH.
	QEMU string `yaml:"qemu"`

	// Kernel is a directory with an unpacked Debian kernel package. Default: the directory
	// that berth image kernel writes.
	Kernel string `yaml:"kernel"`

	// Accel is kvm, tcg (emulation), or empty for KVM if it works and else tcg.
	Accel string `yaml:"accel"`
}

// Containers bounds containers.
type Containers struct {
	CPU     float64       `yaml:"cpu"`      // cores per container. Default: 2
	PIDs    int           `yaml:"pids"`     // processes and threads per container. Default: 512
	Disk    Bytes         `yaml:"disk"`     // bytes that a container may write. Default: 10g
	Idle    time.Duration `yaml:"idle"`     // expiry of an unused container, unless its request sets one. Default: 20m
	MaxIdle time.Duration `yaml:"max_idle"` // maximum that a request may set. Default: 168h
	// time without activity after which a container is paused until its next use; 0: never. Default: 30s
	Sleep   time.Duration `yaml:"sleep"`
	Pool    int           `yaml:"pool"`     // ready sandboxes of the default template with 1g. Default: 2
	MaxPool int           `yaml:"max_pool"` // what bursts of demand let that pool grow to. Default: 100
	Pools   []Pool        `yaml:"pools"`    // ready sandboxes of other templates or sizes
	Network Network       `yaml:"network"`
	// concurrent starts of sandboxes and creations of snapshots; further ones wait. Default: one per CPU
	Starts int `yaml:"starts"`

	OnExpiry berth.OnExpiry `yaml:"on_expiry"` // default for containers: delete or snapshot. Default: delete
	// of the snapshot that an expired container leaves. Default: 720h
	SnapshotLife time.Duration `yaml:"snapshot_life"`
}

// Shell configures the shell.
type Shell struct {
	// DefaultEnvironment is where shells without an environment run commands: container (the
	// default) or local, the client's machine. shell_environment of a project's limits wins.
	DefaultEnvironment string `yaml:"default_environment"`

	Timeout    time.Duration `yaml:"timeout"`     // of a command without one. Default: 10m
	MaxTimeout time.Duration `yaml:"max_timeout"` // maximum that a call may set. Default: 1h
	Output     int           `yaml:"output"`      // characters of a command's output shown to the model. Default: 32768
}

// Store names and tunes the database. "store: URL" is short for "store: {url: URL}".
type Store struct {
	// URL of a PostgreSQL database. "" means a file of the state directory.
	URL string `yaml:"url"`

	// Synchronous, of a file, is "normal" (the default; survives the death of the process) or "full"
	// (also survives a power failure; slower).
	Synchronous string `yaml:"synchronous"`
}

// VectorStores configures vector stores.
type VectorStores struct {
	Memory  Bytes `yaml:"memory"`   // text whose index is held in memory. Default: 512m
	MaxText Bytes `yaml:"max_text"` // text of one file. Default: 32m

	// EmbeddingModel is the name of a model for vectors, as clients would name it. Default:
	// none, searches are by words only.
	EmbeddingModel string `yaml:"embedding_model"`
}

// Batches configures batches.
type Batches struct {
	Concurrency int `yaml:"concurrency"` // requests of all batches at a time. Default: 8
}

// Retry configures retries of a turn after a temporary error.
type Retry struct {
	Attempts int           `yaml:"attempts"` // per turn; each may try several upstreams. Default: 4
	Patience time.Duration `yaml:"patience"` // total time to wait between attempts. Default: 2m
	// after an answer is cut off: start the turn "again" (the default), or "fail"
	Continue string `yaml:"continue"`
}

// Disk sets the free space below which a server refuses writes and ends containers.
type Disk struct {
	// Low is the free space of a volume below which new data is refused. Default: a
	// twentieth of the volume, between 256m and 10g; 0 disables it.
	Low *Bytes `yaml:"low"`
	// Critical is the free space below which the container that writes most is ended.
	// Default: a hundredth, between 64m and 2g; 0 disables it.
	Critical *Bytes `yaml:"critical"`
	// Reserve is the space on the database's volume reserved for deletions. Default: a
	// hundredth, between 16m and 256m; 0 disables it.
	Reserve *Bytes `yaml:"reserve"`
	// Inodes is the number of free inodes below which new data is refused. Default: a
	// hundredth of all, at most 20,000.
	Inodes *int64 `yaml:"inodes"`
}

// E2B configures E2B's API.
type E2B struct {
	// Registries are the registries, HOST or HOST:PORT, from which clients may pull images for
	// templates although their addresses are not public. One on this machine may use plain HTTP.
	// Default: none; public registries need no entry.
	Registries []string `yaml:"registries"`

	// Builds is how many template builds run concurrently on this server. One project has all but one of
	// them at most. Default: 0, which is one for each CPU and one more
	Builds int `yaml:"builds"`

	// BuildTime is how long one build may run. Default: 30m
	BuildTime time.Duration `yaml:"build_time"`

	// ImageSize is the most that one pulled image may have, compressed and unpacked together. Default: 16g
	ImageSize Bytes `yaml:"image_size"`
}
