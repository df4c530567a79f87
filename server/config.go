package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob/remote"
	"github.com/berth-run/berth/project"
)

// Config is the configuration of a server, in YAML. Every field is optional; an unknown key
// is an error.
type Config struct {
	// Driver isolates containers: "gvisor" (the default; without root some limits are
	// missing), "microvm" (needs root, QEMU and a kernel, see berth image kernel), "docker",
	// "kubernetes",
	// or "unsafe-local", which runs commands on this machine without any isolation and is
	// for development only.
	Driver string `yaml:"driver"`

	// Template is the name or digest of the default template of containers. Default: base.
	Template string `yaml:"template"`

	// BuildTemplate is whether berth serve builds the base template by itself if there is no
	// template and this machine can build one: "auto" (the default) or "never".
	BuildTemplate string `yaml:"build_template"`

	// State is the directory of all state. Default: /var/lib/berth as root, else
	// ~/.local/state/berth.
	State string `yaml:"state"`

	// Blobs is the URL of an S3-compatible bucket for files, skills, snapshots and parts of
	// uploads: s3://my-bucket?region=eu-central-1. Default: directories of State.
	Blobs string `yaml:"blobs"`

	Log     LogConfig    `yaml:"log"`
	Metrics ListenConfig `yaml:"metrics"` // for Prometheus to scrape /metrics: all projects, without a key
	Traces  TracesConfig `yaml:"traces"`
	Pprof   ListenConfig `yaml:"pprof"` // of Go profiles at /debug/pprof/; a loopback address

	Server     ServerConfig     `yaml:"server"`
	Docker     DockerConfig     `yaml:"docker"`
	MicroVM    MicroVMConfig    `yaml:"microvm"`
	Kubernetes KubernetesConfig `yaml:"kubernetes"`
	Containers ContainersConfig `yaml:"containers"`
	Shell      ShellConfig      `yaml:"shell"`
	Responses  ResponsesConfig  `yaml:"responses"`
	Budget     BudgetConfig     `yaml:"budget"`
	Preview    PreviewConfig    `yaml:"preview"`
	CORS       CORSConfig       `yaml:"cors"`
	E2B        E2BConfig        `yaml:"e2b"`
	Console    bool             `yaml:"console"` // serve the web console at /console/. Default: true
	Fetch      FetchConfig      `yaml:"fetch"`
	MCP        MCPConfig        `yaml:"mcp"`
	WebSearch  WebSearchConfig  `yaml:"web_search"`
	Images     ImageConfig      `yaml:"image_generation"`
	Store      StoreConfig      `yaml:"store"`
	Cluster    ClusterConfig    `yaml:"cluster"`
	Vectors    VectorsConfig    `yaml:"vector_stores"`
	Batches    BatchesConfig    `yaml:"batches"`
	Disk       DiskConfig       `yaml:"disk"`

	// Limits are the limits of projects, by project id. "default" applies where a project
	// sets none. berth project limit changes limits without a restart.
	Limits map[string]LimitsConfig `yaml:"limits"`

	// Upstreams are model servers, by name. An upstream is used only if an entry of Models
	// names it.
	Upstreams map[string]*UpstreamConfig `yaml:"upstreams"`

	// Currency is the currency of all prices, an ISO 4217 code. Default: usd.
	Currency string `yaml:"currency"`

	Retry RetryConfig `yaml:"retry"`

	// Models routes model names to upstreams. The first entry whose pattern matches wins.
	// Default: routes from the vendors' environment variables, see environmentModels. The
	// demo model "scripted" is always available.
	Models []ModelConfig `yaml:"models"`

	path    string            // of the file; "" if there is none
	origins map[string]origin // of the keys that are set
}

// LogConfig configures the log.
type LogConfig struct {
	Level  string `yaml:"level"`  // debug, info (the default), warn or error
	Format string `yaml:"format"` // text (the default) or json
}

// Threshold returns the level below which messages are dropped.
func (c LogConfig) Threshold() slog.Level {
	var level slog.Level // info
	_ = level.UnmarshalText([]byte(c.Level))
	return level
}

// ListenConfig is the address of a listener.
type ListenConfig struct {
	Listen string `yaml:"listen"` // such as 127.0.0.1:9464. Default: none
}

// ResponsesConfig bounds the memory of responses.
type ResponsesConfig struct {
	// output of the model in one response, which then ends as incomplete. Default: 16m
	MaxOutput Bytes `yaml:"max_output"`
	History   Bytes `yaml:"history"` // cache of chains and conversations. Default: 64m
}

// DockerConfig configures the driver docker.
type DockerConfig struct {
	// Host is the engine's address: unix:///var/run/docker.sock, tcp://host:2376.
	// Default: that of the docker command, from its environment or context.
	Host string `yaml:"host"`

	// Runtime is a runtime configured in the engine, such as runsc. Default: the engine's
	// default.
	Runtime string `yaml:"runtime"`
}

// MicroVMConfig configures the driver microvm.
type MicroVMConfig struct {
	// QEMU is the path of the program. Default: qemu-system-x86_64 in PATH.
	QEMU string `yaml:"qemu"`

	// Kernel is a directory with an unpacked Debian kernel package. Default: the directory
	// that berth image kernel writes.
	Kernel string `yaml:"kernel"`

	// Accel is kvm, tcg (emulation), or empty for KVM if it works and else tcg.
	Accel string `yaml:"accel"`
}

// ContainersConfig bounds containers.
type ContainersConfig struct {
	CPU     float64       `yaml:"cpu"`      // cores per container. Default: 2
	PIDs    int           `yaml:"pids"`     // processes and threads per container. Default: 512
	Disk    Bytes         `yaml:"disk"`     // bytes that a container may write. Default: 10g
	Idle    time.Duration `yaml:"idle"`     // expiry of an unused container, unless its request sets one. Default: 20m
	MaxIdle time.Duration `yaml:"max_idle"` // maximum that a request may set. Default: 168h
	// time without activity after which a container is paused until its next use; 0: never. Default: 30s
	Sleep   time.Duration `yaml:"sleep"`
	Pool    int           `yaml:"pool"`  // ready sandboxes of the default template with 1g. Default: 2
	Pools   []PoolConfig  `yaml:"pools"` // ready sandboxes of other templates or sizes
	Network NetworkConfig `yaml:"network"`
	// concurrent starts of sandboxes and creations of snapshots; further ones wait. Default: one per CPU
	Starts int `yaml:"starts"`

	OnExpiry berth.OnExpiry `yaml:"on_expiry"` // default for containers: delete or snapshot. Default: delete
	// of the snapshot that an expired container leaves. Default: 720h
	SnapshotLife time.Duration `yaml:"snapshot_life"`
}

// ShellConfig bounds shell calls.
type ShellConfig struct {
	Timeout    time.Duration `yaml:"timeout"`     // of a command without one. Default: 10m
	MaxTimeout time.Duration `yaml:"max_timeout"` // maximum that a call may set. Default: 1h
	Output     int           `yaml:"output"`      // characters of a command's output shown to the model. Default: 32768
}

// StoreConfig names and tunes the database. "store: URL" is short for "store: {url: URL}".
type StoreConfig struct {
	// URL of a PostgreSQL database. "" means a file of the state directory.
	URL string `yaml:"url"`

	// Synchronous, of a file, is "normal" (the default; survives the death of the process) or "full"
	// (also survives a power failure; slower).
	Synchronous string `yaml:"synchronous"`
}

// VectorsConfig configures vector stores.
type VectorsConfig struct {
	Memory  Bytes `yaml:"memory"`   // text whose index is held in memory. Default: 512m
	MaxText Bytes `yaml:"max_text"` // text of one file. Default: 32m

	// EmbeddingModel is the name of a model for vectors, as clients would name it. Default:
	// none, searches are by words only.
	EmbeddingModel string `yaml:"embedding_model"`
}

// BatchesConfig configures batches.
type BatchesConfig struct {
	Concurrency int `yaml:"concurrency"` // requests of all batches at once. Default: 8
}

// RetryConfig configures retries of a turn after a temporary error.
type RetryConfig struct {
	Attempts int           `yaml:"attempts"` // per turn; each may try several upstreams. Default: 4
	Patience time.Duration `yaml:"patience"` // total time to wait between attempts. Default: 2m
	// after an answer is cut off: start the turn "again" (the default), or "fail"
	Continue string `yaml:"continue"`
}

// ModelConfig routes models to named upstreams, or to one described inline.
type ModelConfig struct {
	Match string `yaml:"match"` // a name or a pattern: qwen3-32b, gpt-*, *

	Upstreams []TargetConfig `yaml:"upstreams"` // share the turns by weight
	Fallbacks []TargetConfig `yaml:"fallbacks"` // tried in this order when all upstreams fail
	// wait for the first token before also trying another upstream. Default: never
	HedgeAfter time.Duration `yaml:"hedge_after"`

	// ContextWindow is the model's limit on input and output tokens together. With it,
	// truncation "auto" drops old items before a turn. Default: unknown; then the
	// upstream's error reveals that the input is too long.
	ContextWindow int `yaml:"context_window"`

	// For GET /v1/models, which also shows the window. Default: nothing.
	Modalities []string `yaml:"modalities"` // input: text, image, file, audio
	Tools      *bool    `yaml:"tools"`      // whether it can call tools

	// Inline upstream, if Upstreams is empty:
	UpstreamConfig `yaml:",inline"`
	Upstream       string        `yaml:"upstream"`    // the upstream's name for the model. Default: the same
	FirstToken     time.Duration `yaml:"first_token"` // as in timeouts
	Silence        time.Duration `yaml:"silence"`     // as in timeouts
}

// Bytes is a size: a number with an optional unit k, m, g or t.
type Bytes int64

// UnmarshalYAML parses 1073741824, 512m or 10g.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error {
	return b.Set(n.Value)
}

// Set implements pflag.Value, together with String and Type.
func (b *Bytes) Set(s string) error {
	var number int64
	var unit string
	if c, err := fmt.Sscanf(s, "%d%s", &number, &unit); c == 0 || (err != nil && !errors.Is(err, io.EOF) && c != 1) {
		return fmt.Errorf("%q is not a size such as 10g", s)
	}
	shift, ok := map[string]int{"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[unit]
	if !ok || number < 0 || number > 1<<62>>shift {
		return fmt.Errorf("%q is not a size such as 10g", s)
	}
	*b = Bytes(number << shift)
	return nil
}

func (b *Bytes) String() string {
	for _, u := range []struct {
		name  string
		shift int
	}{{"t", 40}, {"g", 30}, {"m", 20}, {"k", 10}} {
		if n := *b >> u.shift; n > 0 && n<<u.shift == *b {
			return fmt.Sprintf("%d%s", n, u.name)
		}
	}
	return fmt.Sprint(int64(*b))
}

func (*Bytes) Type() string { return "size" }

// defaultLimits is the key of the limits for all projects.
const defaultLimits = "default"

// limits returns the limits by project. The key "" applies to all projects.
func (c *Config) limits() map[berth.ProjectID]berth.Limits {
	limits := map[berth.ProjectID]berth.Limits{}
	for id, l := range c.Limits {
		if id == defaultLimits {
			id = ""
		}
		limits[berth.ProjectID(id)] = l.Limits()
	}
	return limits
}

// check validates what keyRules cannot express. It returns all errors that it finds.
func (c *Config) check() error {
	_, err := c.Budget.budget()
	return errors.Join(c.checkTogether(), c.checkPools(machineMemory()), c.Server.check(), c.Server.TLS.check(),
		c.checkAddresses(), c.checkState(), c.checkStore(), c.checkCluster(), err,
		c.checkLimits(), c.checkBlobs(), c.checkKubernetes(), c.checkCORS(), c.checkTraces(), c.checkPreview(),
		c.WebSearch.check(), c.checkModels())
}

func (c *Config) checkBlobs() error {
	if c.Blobs == "" {
		return nil
	}
	if _, err := remote.Parse(c.Blobs); err != nil {
		return fmt.Errorf("blobs: %w", err)
	}
	return nil
}

func (c *Config) checkLimits() error {
	var wrong []error
	for _, id := range slices.Sorted(maps.Keys(c.Limits)) {
		if err := c.Limits[id].Check(); err != nil {
			wrong = append(wrong, fmt.Errorf("limits.%s.%w", id, err))
		}
		if id != defaultLimits && !project.ValidID(id) {
			wrong = append(wrong, fmt.Errorf("limits.%s: %q is neither %s nor a project id", id, id, defaultLimits))
		}
	}
	return errors.Join(wrong...)
}

// Verify checks what a server needs at its start besides the state directory: keys in the
// environment and certificate files. It returns all errors that it finds.
func (c *Config) Verify() error {
	return c.problems(nil, errors.Join(c.verify(true)...))
}

func (c *Config) verify(models bool) []error {
	var wrong []error
	if models {
		routes, err := newRouting(c, nil, slog.New(slog.DiscardHandler))
		if wrong = eachError(err); err == nil {
			wrong = unrouted(routes.router, c.Images.Model, c.Vectors.EmbeddingModel)
		}
	}
	_, err := c.WebSearch.options(slog.New(slog.DiscardHandler))
	wrong = append(wrong, eachError(err)...)
	if c.Server.TLS.CertFile != "" {
		_, err := readCertificate(c.Server.TLS)
		wrong = append(wrong, eachError(err)...)
	}
	_, err = c.Containers.Network.options()
	return append(wrong, eachError(err)...)
}

// VerifyBlobs checks that the credentials of the bucket can be found on this machine.
func (c *Config) VerifyBlobs() error {
	if c.Blobs == "" {
		return nil
	}
	at, err := remote.Parse(c.Blobs)
	if err == nil {
		err = remote.CheckCredentials(at)
	}
	if err != nil {
		return c.in(fmt.Errorf("blobs: %w", err))
	}
	return nil
}
