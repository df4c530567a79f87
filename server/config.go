package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/project"
)

// Config is the configuration of a server, in YAML. Every field is optional; an unknown key
// is an error.
type Config struct {
	// Driver isolates containers: "gvisor" (the default; needs root), "microvm" (needs
	// root, QEMU and a kernel, see berth image kernel), "docker", or "unsafe-local", which runs commands on this machine without any isolation
	// and is for development only.
	Driver string `yaml:"driver"`

	// Template is the name or digest of what containers start from. Default: base.
	Template string `yaml:"template"`

	Server     ServerConfig     `yaml:"server"`
	Docker     DockerConfig     `yaml:"docker"`
	MicroVM    MicroVMConfig    `yaml:"microvm"`
	Containers ContainersConfig `yaml:"containers"`
	Shell      ShellConfig      `yaml:"shell"`
	Responses  ResponsesConfig  `yaml:"responses"`
	Budget     BudgetConfig     `yaml:"budget"`
	Preview    PreviewConfig    `yaml:"preview"`
	Fetch      FetchConfig      `yaml:"fetch"`
	Store      StoreConfig      `yaml:"store"`
	Disk       DiskConfig       `yaml:"disk"`

	// Limits are the limits of projects, by id. Those of "default" apply where a project
	// has none. berth project limit changes them without a restart.
	Limits map[string]LimitsConfig `yaml:"limits"`

	// Upstreams are the servers of models, by name. Nothing is sent to an upstream that no
	// entry of Models names.
	Upstreams map[string]*UpstreamConfig `yaml:"upstreams"`

	// Currency is that of all prices, as in ISO 4217. Default: usd.
	Currency string `yaml:"currency"`

	Retry RetryConfig `yaml:"retry"`

	// Models routes model names to upstreams: the first entry whose pattern fits.
	// Default: what the vendors' environment variables say, see environmentModels. The
	// name "scripted", a demo model for demos and tests, is always there.
	Models []ModelConfig `yaml:"models"`

	path string // of the file; "" is none
}

// ResponsesConfig bounds what responses take in memory and in the store.
type ResponsesConfig struct {
	MaxOutput Bytes `yaml:"max_output"` // that models may say in one, which then ends as incomplete. Default: 16m
	History   Bytes `yaml:"history"`    // of chains and conversations that are cached. Default: 64m
}

// DockerConfig configures the driver docker.
type DockerConfig struct {
	// Host is the engine's address: unix:///var/run/docker.sock, tcp://host:2376.
	// Default: what the docker command uses, by its environment or context.
	Host string `yaml:"host"`

	// Runtime is one that the engine is configured with, such as runsc. Default: the
	// engine's own.
	Runtime string `yaml:"runtime"`
}

// MicroVMConfig configures the driver microvm.
type MicroVMConfig struct {
	// QEMU is the program. Default: the qemu-system-x86_64 in PATH.
	QEMU string `yaml:"qemu"`

	// Kernel is a directory into which a Debian kernel package was unpacked. Default:
	// where berth image kernel puts one.
	Kernel string `yaml:"kernel"`

	// Accel is kvm, tcg (emulation), or empty: KVM if a machine starts with it.
	Accel string `yaml:"accel"`
}

// ContainersConfig bounds containers.
type ContainersConfig struct {
	CPU     float64       `yaml:"cpu"`      // cores of each. Default: 2
	PIDs    int           `yaml:"pids"`     // processes and threads of each. Default: 512
	Disk    Bytes         `yaml:"disk"`     // what each may write, such as 10g. Default: 10g
	Idle    time.Duration `yaml:"idle"`     // life without use, unless a container asks otherwise. Default: 20m
	MaxIdle time.Duration `yaml:"max_idle"` // the most that one may ask for. Default: 168h
	Pool    int           `yaml:"pool"`     // sandboxes of the template with 1g that are held ready. Default: 2
	Pools   []PoolConfig  `yaml:"pools"`    // sandboxes of others, or other sizes, that are as well
	Network NetworkConfig `yaml:"network"`
	Starts  int           `yaml:"starts"` // sandboxes that are started, and snapshots that are made, at once; others wait. Default: one for each CPU

	OnExpiry     berth.OnExpiry `yaml:"on_expiry"`     // of containers that do not say: delete or snapshot. Default: delete
	SnapshotLife time.Duration  `yaml:"snapshot_life"` // of the snapshot that a container leaves when it expires. Default: 720h
}

// ShellConfig bounds shell calls.
type ShellConfig struct {
	Timeout    time.Duration `yaml:"timeout"`     // of a command that names none. Default: 10m
	MaxTimeout time.Duration `yaml:"max_timeout"` // the most that one may name. Default: 1h
	Output     int           `yaml:"output"`      // characters of a command's output that the model sees. Default: 32768
}

// StoreConfig tunes the database.
type StoreConfig struct {
	// Synchronous is "normal" (the default; nothing is lost when the process dies)
	// or "full" (nor when the power does; slower).
	Synchronous string `yaml:"synchronous"`
}

// RetryConfig says how a turn is retried after a temporary error.
type RetryConfig struct {
	Attempts int           `yaml:"attempts"` // of a turn, each of which may try several upstreams. Default: 4
	Patience time.Duration `yaml:"patience"` // the most time spent waiting between them. Default: 2m
	Continue string        `yaml:"continue"` // what to do when an answer breaks off: start the turn "again" (the default), or "fail"
}

// ModelConfig routes models to named upstreams, or to one that it describes itself.
type ModelConfig struct {
	Match string `yaml:"match"` // a name or a pattern: qwen3-32b, gpt-*, *

	Upstreams  []TargetConfig `yaml:"upstreams"`   // share the turns by weight
	Fallbacks  []TargetConfig `yaml:"fallbacks"`   // asked in this order when none of these answers
	HedgeAfter time.Duration  `yaml:"hedge_after"` // without a first word, ask another as well. Default: never

	// ContextWindow is how many tokens the model takes and answers with together:
	// with it, truncation "auto" drops old items beforehand. Default: unknown; what
	// is too long is then learned from the upstream's refusal.
	ContextWindow int `yaml:"context_window"`

	// What GET /v1/models shows of the model, beside its window. Default: nothing.
	Modalities []string `yaml:"modalities"` // what it takes: text, image, file, audio
	Tools      *bool    `yaml:"tools"`      // whether it can call any

	// Without upstreams:
	UpstreamConfig `yaml:",inline"`
	Upstream       string        `yaml:"upstream"`    // the upstream's name for the model. Default: the same
	FirstToken     time.Duration `yaml:"first_token"` // as in timeouts
	Silence        time.Duration `yaml:"silence"`     // as in timeouts
}

// Bytes is a size: a number, or one with k, m, g or t.
type Bytes int64

// UnmarshalYAML reads 1073741824, 512m or 10g.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error {
	return b.Set(n.Value)
}

// Set, String and Type make it the value of a flag.
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
	if *b > 0 && *b%(1<<30) == 0 {
		return fmt.Sprintf("%dg", *b>>30)
	}
	return fmt.Sprint(int64(*b))
}

func (*Bytes) Type() string { return "size" }

// defaultLimits is the name of the limits of all projects.
const defaultLimits = "default"

// limits returns the limits by project; "" is for all.
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

// LoadConfig reads a configuration file; without one all is default.
func LoadConfig(path string) (*Config, error) {
	c := &Config{Containers: ContainersConfig{Pool: defaultPool}, path: path}
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
		if err := c.decode(text); err != nil {
			return nil, c.in(err)
		}
	}
	c.Driver, c.Template = cmp.Or(c.Driver, "gvisor"), cmp.Or(c.Template, "base")
	if most := c.Shell.MaxTimeout; most > 0 && c.Shell.Timeout == 0 {
		c.Shell.Timeout = min(10*time.Minute, most)
	}
	if err := c.check(); err != nil {
		return nil, c.in(err)
	}
	return c, nil
}

// in returns an error with the file that has the configuration.
func (c *Config) in(err error) error {
	if c.path == "" || err == nil {
		return err
	}
	return fmt.Errorf("%s: %w", c.path, err)
}

// decode reads a file's text. Its errors name keys.
func (c *Config) decode(text []byte) error {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return fmt.Errorf("the file is no YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(document.Content) == 0 {
		return nil // it has comments at most
	}
	if err := (keyReader{}).check(document.Content[0], reflect.TypeFor[Config](), keyPath{}); err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("the file is no configuration: %w", err)
	}
	return nil
}

// check checks what the rules of single keys do not.
func (c *Config) check() error {
	if err := errors.Join(c.checkTogether(), c.checkPools(machineMemory()), c.Server.check()); err != nil {
		return err
	}
	if _, err := c.Budget.budget(); err != nil {
		return err
	}
	for id, l := range c.Limits {
		if err := l.Check(); err != nil {
			return fmt.Errorf("limits.%s.%w", id, err)
		}
		if id != defaultLimits && !project.ValidID(id) {
			return fmt.Errorf("limits: %q is neither %s nor a project", id, defaultLimits)
		}
	}
	if err := c.checkPreview(); err != nil {
		return err
	}
	return c.checkModels()
}

// DefaultState returns the state directory where --state is not given.
func DefaultState() string {
	if dir := os.Getenv("BERTH_STATE"); dir != "" {
		return dir
	}
	if os.Getuid() == 0 {
		return "/var/lib/berth"
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "berth-state"
	}
	return filepath.Join(home, ".local", "state", "berth")
}

// Verify checks what a server of this configuration uses when it starts, beside the state
// directory: keys in the environment and the files of certificates.
func (c *Config) Verify() error {
	if _, _, err := newRouter(c, nil, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	_, err := c.Containers.Network.options()
	return err
}
